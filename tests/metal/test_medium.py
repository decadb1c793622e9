"""What is on the deploy medium: the packages of the lock that the agent imports there, and the programs that it runs."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from node_agent.deploy_system import effects

ROOT = Path(__file__).parents[2]
METAL = ROOT / "deploy/metal"
IMPORTED = """
import importlib, json, pkgutil, sys
from importlib.metadata import packages_distributions
import node_agent.deploy_system as package
names = [found.name for found in pkgutil.walk_packages(package.__path__, "node_agent.deploy_system.")]
# httpx imports the last ones when it connects.
for name in [*names, "node_agent.connection", "berth.process.logs", "httpcore", "anyio", "h11"]:
    importlib.import_module(name)
tops = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
found = packages_distributions()
named = {distribution.lower().replace("_", "-") for top in tops for distribution in found.get(top, [])}
print(json.dumps([sorted(sys.modules), sorted(named)]))
"""


@functools.cache
def imported_packages() -> tuple[list[str], set[str]]:
    """The modules that the agent imports on the medium, and their packages."""
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True, cwd=ROOT)
    modules, names = json.loads(done.stdout)
    return modules, set(names)


def test_the_medium_has_the_python_packages_that_the_agent_imports_and_no_other() -> None:
    modules, imported = imported_packages()
    listed = set((METAL / "python-packages.txt").read_text().split())
    # What an interactive Python or a test run loads beside them.
    beside = {"berth", "setuptools", "colorama", "pygments", "rich", "click", "attrs", "greenlet", "hypothesis"}
    beside |= {"markdown-it-py", "mdurl", "better-exceptions"}
    assert imported - beside <= listed, f"add to deploy/metal/python-packages.txt: {imported - beside - listed}"
    needed_unseen = {"pycparser"}  # cffi imports it while it builds, and states that it needs it
    assert listed - imported <= needed_unseen, f"nothing imports {listed - imported - needed_unseen}"
    assert len(modules) < 800


def test_no_part_of_pythons_library_that_the_agent_imports_is_removed() -> None:
    script = (METAL / "build-deploy-medium").read_text()
    (removed,) = re.findall(r"usr/lib/python3\.11/\{([a-z0-9_,]+)\}", script)
    tops = {name.partition(".")[0] for name in imported_packages()[0]}
    assert {"idlelib", "tkinter"} <= set(removed.split(",")), "the pattern finds the list"
    assert not tops & set(removed.split(",")), "the medium's agent would not start"


def test_every_listed_package_is_in_the_lock_with_its_hashes() -> None:
    command = [METAL / "locked-requirements", METAL / "python-packages.txt", ROOT / "requirements.lock"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    entries = re.findall(r"^([a-z0-9.-]+)==", done.stdout, re.MULTILINE)
    assert entries == (METAL / "python-packages.txt").read_text().split()
    assert done.stdout.count("--hash=sha256:") >= len(entries)


def test_a_package_that_no_lock_has_is_named(tmp_path: Path) -> None:
    (tmp_path / "names").write_text("pydantic\nno-such-package\n")
    command = [METAL / "locked-requirements", tmp_path / "names", ROOT / "requirements.lock"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "no lock has: no-such-package\n"


def test_every_program_that_the_work_runs_is_on_the_medium() -> None:
    listed = set((METAL / "tools.txt").read_text().split())
    programs: set[str] = set()
    for module in Path(effects.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.List) and len(node.elts) > 1 and isinstance(node.elts[0], ast.Constant):
                programs.add(str(node.elts[0].value))
    programs = {name for name in programs if re.match(r"[a-z]", name)}
    assert {"nvme", "hdparm", "sg_sanitize", "blkdiscard", "blkid", "zstd", "ip"} <= programs
    assert {"tpm2" if name.startswith("tpm2_") else name for name in programs} <= listed


def test_what_the_host_lacks_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "bash").symlink_to("/bin/bash")
    script = (METAL / "missing-packages").read_text().replace(':/usr/sbin:/sbin"', '"')
    (tmp_path / "script").write_text(script)
    done = subprocess.run(
        ["/bin/bash", tmp_path / "script", "--boot"], env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stdout.startswith("the deploy medium needs: apt-get install --no-install-recommends apt mmdebstrap ")
    assert "qemu-system-x86" in done.stdout
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("devices", "mounted"),
    [
        ({"sr0": b"BERTH_DEPLOY"}, "sr0"),
        ({"sr0": b"DEBIAN      ", "sr1": b"BERTH_DEPLOY"}, "sr1"),
        ({"sda": b"BERTH_DEPLOY", "sdb": b"BERTH_DEPLOY", "sr0": b"BERTH_DEPLOY"}, "sr0"),
        ({"sda": b"BERTH_DEPLOY"}, ""),
        ({"vda": b"BERTH_DEPLOY", "nvme0n1": b"BERTH_DEPLOY", "mmcblk0": b"BERTH_DEPLOY"}, ""),
    ],
)
def test_the_medium_is_read_from_a_cd_drive_alone(tmp_path: Path, devices: dict[str, bytes], mounted: str) -> None:
    """A tenant may have written on a disk or on a stick what looks like a medium, with another server; a CD may appear later."""
    (found,) = re.findall(r"^is_medium\(\) .*?^done$", (METAL / "deploy-init").read_text(), re.MULTILINE | re.DOTALL)
    script = found.replace("-b ", "-e ").replace("/dev/s", f"{tmp_path}/dev/s")
    (tmp_path / "dev").mkdir()
    for name, label in devices.items():
        (tmp_path / "dev" / name).write_bytes(bytes(32808) + label)
        (tmp_path / "sys/block" / name).mkdir(parents=True)
        (tmp_path / "sys/block" / name / "removable").write_text("1\n")
    script = script.replace("/sys/", f"{tmp_path}/sys/")
    busybox = 'busybox() { case $1 in mount) echo "$6";; sleep) ;; grep) false;; *) "$@";; esac; }'
    done = subprocess.run(["sh", "-c", f"{busybox}\n{script}"], capture_output=True, text=True)
    assert Path(done.stdout.strip()).name == mounted, (done.stdout, done.stderr)


@pytest.mark.full
@pytest.mark.hardware
@pytest.mark.timeout(600)
def test_two_builds_are_the_same_bytes(tmp_path: Path) -> None:
    missing = subprocess.run([METAL / "missing-packages"], capture_output=True, text=True)
    if missing.returncode != 0:
        pytest.skip(missing.stdout.strip())
    digests = []
    for number, mask in enumerate((0o022, 0o077)):
        out = tmp_path / f"{number}/deploy.iso"
        environment = {**os.environ, "PIP": f"{sys.executable} -m pip", "TMPDIR": str(tmp_path)}
        subprocess.run(
            [METAL / "build-deploy-medium", out], env=environment, check=True, capture_output=True, umask=mask
        )
        digests.append(hashlib.sha256(out.read_bytes()).hexdigest())
        out.unlink()
    assert digests[0] == digests[1]
