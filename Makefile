# `make help` says what each target does.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LIBVIRT_STAMP := $(VENV)/.libvirt
REDFISH_TOOLS := build/redfish
GUEST_IMAGE := build/guests/mini.qcow2
DEBIAN_IMAGE := build/guests/debian.qcow2
DEPLOY_MEDIUM := build/metal/deploy.iso
TEST_KERNEL := build/test-kernel
HARDWARE ?= hardware and not full
# A test that is still there long after its own limit ends its process, with every stack, instead of the whole run's time.
HANGING := -o faulthandler_timeout=660 -o faulthandler_exit_on_timeout=true
STATE_DIR ?= var
MINUTES ?= 10
MACHINES ?= 3
AT_ONCE ?= 2
SEED ?= 7
PACKAGES := berth orchestrator worker outbox_relay node_agent migrations

# Dozens of processes of ours start in the tests and the demo, and pytest rewrites every test module: none of it is compiled twice.
unexport PYTHONDONTWRITEBYTECODE

# What an installation may contain; requirements-redfish.lock is of tests alone.
PRODUCT_LOCKS = requirements.lock requirements-libvirt.lock

.DEFAULT_GOAL := help
.PHONY: help setup demo deploy-medium up test test-full test-hardware test-kernel lint docs references sbom provenance bench bench-full campaign gate soak upgrade-test mutants mutants-full clean
.PHONY: lint-style lint-types lint-imports lint-site lint-secrets lint-packages

help:  ## say what each target does
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## make .venv with the locked dependencies (done once; again when the lock changes)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Berth needs Python 3.11 or newer; name one: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP)  ## real allocations through every component, then a table (2 minutes; DRIVER=libvirt: on guests of QEMU; DRIVER=redfish: on emulated bare-metal machines)
ifeq ($(DRIVER),libvirt)
	@deploy/guests/missing-packages
	@$(MAKE) --no-print-directory $(LIBVIRT_STAMP) $(GUEST_IMAGE)
	deploy/guests/private-libvirtd /var/tmp/berth-libvirtd-demo \
	  $(BIN)/berth demo --state-dir $(STATE_DIR)/demo --fresh --guest-image $(GUEST_IMAGE)
else ifeq ($(DRIVER),redfish)
	@deploy/metal/missing-packages --boot
	@deploy/guests/missing-packages
	@$(MAKE) --no-print-directory $(LIBVIRT_STAMP) $(REDFISH_TOOLS)/ready $(GUEST_IMAGE) $(DEPLOY_MEDIUM)
	deploy/guests/private-libvirtd /var/tmp/berth-libvirtd-demo \
	  $(BIN)/berth demo --state-dir $(STATE_DIR)/demo --fresh --guest-image $(GUEST_IMAGE) --deploy-medium $(DEPLOY_MEDIUM) \
	  --redfish-tools $(REDFISH_TOOLS) --machines $(MACHINES) --at-once $(AT_ONCE)
else
	$(BIN)/berth demo --state-dir $(STATE_DIR)/demo --fresh
endif

up: $(STAMP)  ## start the local stack and show it until Ctrl-C
	$(BIN)/berth up --state-dir $(STATE_DIR)

lint: $(STAMP)  ## ruff, mypy --strict, import rules, the site's links, secrets in files, known vulnerabilities
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint-types lint-style lint-imports lint-site lint-secrets lint-packages

lint-style: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint-types: $(STAMP)
	$(BIN)/mypy

lint-imports: $(STAMP)
	$(BIN)/lint-imports

lint-site: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lint-secrets: $(STAMP)
	$(BIN)/python deploy/release/scan_secrets.py

lint-packages: $(STAMP)
	$(BIN)/python deploy/release/audit_packages.py

docs: $(STAMP)  ## build the documentation site in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

references: $(STAMP)  ## write the generated pages of docs/reference
	@for page in environment failure problem event http role sql_function; do $(BIN)/python -m deploy.$${page}_reference || exit 1; done

test: lint  ## lint and the tests that main must always pass (14 minutes on 2 cores; aim: 10)
	$(BIN)/pytest -n 5 --dist loadfile $(HANGING) -m "not full and not hardware and not kernel"

test-hardware: $(STAMP)  ## the tests on real guests of QEMU (7 minutes; needs root; says what to apt-get install)
	@deploy/guests/missing-packages
	@$(MAKE) --no-print-directory $(LIBVIRT_STAMP) $(GUEST_IMAGE)
	@$(MAKE) --no-print-directory $(REDFISH_TOOLS)/ready || echo "the tests with an emulated BMC will be skipped"
	@if why=$$(deploy/metal/missing-packages --boot); then $(MAKE) --no-print-directory $(DEPLOY_MEDIUM) || echo "it was not built: its tests will be skipped"; \
	else echo "the tests with the deploy medium will be skipped: $$why"; fi
	BERTH_TEST_GUEST_IMAGE=$(abspath $(GUEST_IMAGE)) BERTH_TEST_DEBIAN_IMAGE=$(abspath $(DEBIAN_IMAGE)) \
	BERTH_TEST_DEPLOY_MEDIUM=$(abspath $(DEPLOY_MEDIUM)) \
	  deploy/guests/private-libvirtd /var/tmp/berth-libvirtd $(BIN)/pytest -n 2 --dist loadfile -m "$(HARDWARE)"

# In this machine's kernel if it has device mapper, otherwise in Debian's under QEMU, where a collection before leaves compiled files.
test-kernel: $(STAMP)  ## the tests that need device mapper (20 minutes by emulation; needs root; says what to apt-get install)
	@tests/kernels/missing-packages
ifneq ($(wildcard /sys/class/misc/device-mapper),)
	$(BIN)/pytest -p no:cacheprovider --confcutdir tests/kernels -m kernel tests/kernels
else
	@$(MAKE) --no-print-directory $(TEST_KERNEL)/vmlinuz
	$(BIN)/pytest -p no:cacheprovider --confcutdir tests/kernels -m kernel tests/kernels --collect-only >/dev/null
	tests/kernels/run-in-kernel $(TEST_KERNEL) --seconds 5400 \
	  $$($(BIN)/python -c 'from node_agent.checks.accelerator import kvm_boots; print("--kvm" * kvm_boots())') \
	  $(BIN)/pytest -p no:cacheprovider --confcutdir tests/kernels -m kernel tests/kernels
endif

test-full: lint  ## everything, the long tests included
	@$(MAKE) --no-print-directory $(REDFISH_TOOLS)/ready || echo "the stub BMC will not be judged by DMTF's validator"
	$(BIN)/pytest -n 2 --dist loadfile -m "not hardware and not kernel"
	@if why=$$(deploy/guests/missing-packages); then \
	  $(MAKE) --no-print-directory $(DEBIAN_IMAGE) || echo "the tests with guests of Debian will be skipped"; \
	  $(MAKE) --no-print-directory test-hardware HARDWARE=hardware; \
	else echo "the tests with guests did not run: $$why"; fi
	@if why=$$(tests/kernels/missing-packages); then $(MAKE) --no-print-directory test-kernel; \
	else echo "the tests in tests/kernels did not run: $$why"; fi

$(LIBVIRT_STAMP): $(STAMP) requirements-libvirt.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --no-build-isolation \
	  -r requirements-libvirt.lock
	@touch $@

$(REDFISH_TOOLS)/ready: requirements-redfish.lock
	$(PYTHON) -m venv --clear $(REDFISH_TOOLS)
	sed -nE '/^(setuptools|pbr)==/,/[^\\]$$/p' $< | $(REDFISH_TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check \
	  --require-hashes --no-deps -r /dev/stdin
	$(REDFISH_TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --no-build-isolation -r $<
	@touch $@

$(GUEST_IMAGE): deploy/guests/build-mini-guest deploy/guests/boot-disk deploy/guests/mini-guest-init
	deploy/guests/build-mini-guest $@

$(TEST_KERNEL)/vmlinuz: tests/kernels/build-test-kernel tests/kernels/test-kernel-init
	tests/kernels/build-test-kernel $(TEST_KERNEL)
	@touch $@

deploy-medium: $(DEPLOY_MEDIUM)  ## build/metal/deploy.iso, which bare-metal machines boot (ROOT_KEYS=FILE; one minute)

# From Debian's packages, the locked wheels, the agent's sources and ROOT_KEYS=FILE; delete it to take newer packages of Debian.
$(DEPLOY_MEDIUM): $(ROOT_KEYS) requirements.lock pyproject.toml $(wildcard deploy/metal/*) $(shell find node_agent berth/process -name '*.py') | $(STAMP)
	ROOT_KEYS="$(ROOT_KEYS)" PIP="$(BIN)/python -m pip" deploy/metal/build-deploy-medium $@

$(DEBIAN_IMAGE): deploy/guests/build-debian-guest deploy/guests/boot-disk
	deploy/guests/build-debian-guest $@

sbom: $(STAMP)  ## the packages of the product's locks with their hashes, as CycloneDX, in build/dist
	@mkdir -p build/dist
	cat $(PRODUCT_LOCKS) | $(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --sv 1.6 --of JSON --validate \
	  --output-file build/dist/berth.cdx.json -

provenance: sbom  ## the wheel and the SBOM with their digests and origin, as a SLSA statement, in build
	@rm -f build/dist/*.whl
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps \
	  --no-build-isolation --wheel-dir build/dist .
	$(BIN)/python deploy/release/provenance.py --out build/provenance.json build/dist/*

bench: $(STAMP)  ## the budgets of DESIGN §10: one line each with figure, limit and ratio
	$(BIN)/python -m benchmarks

bench-full: $(STAMP)  ## as bench, and the benchmarks that take minutes to seed
	$(BIN)/python -m benchmarks --full

campaign: $(STAMP)  ## MINUTES=10 SEED=7: load and faults on a whole stack, then every check (docs/explanation/campaign.md)
	$(BIN)/python -m tests.campaign --minutes $(MINUTES) --seed $(SEED)

gate: MINUTES = 30
gate: RUNS ?= 20
gate: CALM ?= 5
gate: $(STAMP)  ## RUNS=20 MINUTES=30 CALM=5: campaigns with faults and without, before a release (13 hours); goes on where it was killed
	$(BIN)/python -m tests.campaign.gate --runs "$(RUNS)" --minutes "$(MINUTES)" --calm "$(CALM)"

soak: MINUTES = 90
soak: $(STAMP)  ## MINUTES=90 SEED=7: a campaign without faults; fails if memory, connections or tables grow (report in build/soak)
	$(BIN)/python -m tests.campaign.soak --minutes $(MINUTES) --seed $(SEED)

upgrade-test: MINUTES = 1
upgrade-test: $(STAMP)  ## MINUTES=1 SEED=7: a rolling upgrade from the last release under load, back and forward (6 minutes)
	$(BIN)/python -m tests.upgrade --minutes $(MINUTES) --seed $(SEED)

mutants: $(STAMP)  ## plant 8 mutants of each noun, each of which a test must catch (under 60 minutes; docs/explanation/mutants.md)
	$(BIN)/python -m tests.mutants --selected

mutants-full: $(STAMP)  ## as mutants, with the whole catalogue
	$(BIN)/python -m tests.mutants

clean:  ## remove caches and the local state (stop the stack first); keeps .venv
	rm -rf $(STATE_DIR) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .schemathesis
	find $(PACKAGES) tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
