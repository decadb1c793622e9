"""Each process works under the restrictions that its service has in the compose file.

Docker is not needed: bubblewrap gives a process what the service declares, a read-only root file system, its `tmpfs` as the only
writable paths, secrets mounted read-only at /run/secrets, no root, no capabilities, `no-new-privileges`. Its filter of
system calls is Docker's own and is not part of this test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from berth.local.authority import Authority
from berth.local.processes import (
    Endpoints,
    ProcessPlan,
    issuer_plan,
    orchestrator_plan,
    relay_plan,
    webhooks_plan,
    worker_plan,
)
from berth.local.servers import LocalNats, LocalPostgres, LocalTemporal, free_port
from tests.allocations.seeding import create_allocation, seed
from tests.databases import as_roles, copied_database
from tests.deploy import deployment
from tests.metrics_ports import NO_ANSWER, get
from tests.support.waiting import wait_for
from tests.support.worker_processes import play_nodes, release_all

BWRAP = shutil.which("bwrap")
SECRETS = Path("/run/secrets")
SERVICES = {
    "orchestrator-public": "api", "orchestrator-node": "node-api", "issuer": "issuer", "relay": "relay", "worker": "worker",
    "webhooks": "webhooks",
}  # fmt: skip
"""Each service of ours that keeps running, and the plan of its process."""
BY_PROFILE = {"audit-stream"}
"""A process of the worker's image with the same restrictions, which runs only where the operator asks for it."""
PROBE = """
import os, sys
for path in sys.argv[1:]:
    try:
        open(os.path.join(path, "probe"), "w").close()
        print(path)
    except OSError:
        pass
"""


def can_restrict() -> bool:
    """Whether bubblewrap is installed and may make namespaces here."""
    if BWRAP is None:
        return False
    tried = subprocess.run([BWRAP, "--ro-bind", "/", "/", "--unshare-user", "true"], capture_output=True, check=False)
    return tried.returncode == 0


pytestmark = pytest.mark.skipif(
    not can_restrict(), reason="bubblewrap (bwrap) is not installed or may not make namespaces"
)


def restricted(name: str, secrets: Path) -> list[str]:
    """The command line that precedes a service's process."""
    service = deployment.services()[name]
    user, group = service["user"].split(":")
    command = [str(BWRAP), "--die-with-parent", "--ro-bind" if service["read_only"] else "--bind", "/", "/"]
    command += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run"]
    for path in service.get("tmpfs", ()):
        command += ["--tmpfs", path.split(":")[0]]
    # What an image contains: the interpreter with its packages, and the project.
    command += ["--ro-bind", sys.prefix, sys.prefix, "--ro-bind", str(deployment.ROOT), str(deployment.ROOT)]
    command += ["--ro-bind", str(secrets), str(SECRETS), "--remount-ro", "/run"]
    command += ["--unshare-user", "--uid", user, "--gid", group]
    for capability in service["cap_drop"]:
        command += ["--cap-drop", capability]
    for capability in service.get("cap_add", ()):
        command += ["--cap-add", f"CAP_{capability}"]
    return [*command, "--"]


def status_of(pid: int) -> dict[str, str]:
    """What the kernel says of the process that bubblewrap became or started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    lines = Path(f"/proc/{children[0] if children else pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


class Containers:
    """The processes of a deployment, restricted."""

    def __init__(self, directory: Path, endpoints: Endpoints) -> None:
        self.directory, self.endpoints = directory, endpoints
        self.secrets = directory / "secrets"
        deployment.make_secrets(self.secrets)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.ports: dict[str, int] = {}

    def plan(self, name: str) -> ProcessPlan:
        """The process of a service; its files are those of the service."""
        files = Authority(
            ca_certificate=SECRETS / "node_ca_certificate.pem", ca_certificates=SECRETS / "node_ca_certificates.pem",
            ca_key=SECRETS / "node_ca_key.pem", deploy_ca_certificate=SECRETS / "deploy_ca_certificate.pem",
            deploy_ca_key=SECRETS / "deploy_ca_key.pem", console_certificate=SECRETS / "console_listener_certificate.pem",
            console_key=SECRETS / "console_listener_key.pem", listener_certificate=SECRETS / "node_listener_certificate.pem",
            listener_key=SECRETS / "node_listener_key.pem", task_signing_key=SECRETS / "task_signing_key.pem",
            task_verifying_keys=SECRETS / "task_verifying_keys.pem", webhook_keys=SECRETS / "webhook_keys",
            payload_keys=SECRETS / "temporal_payload_keys", root_key=SECRETS / "none",
            root_keys=SECRETS / "root_public_keys.pem", key_set=SECRETS / "key_set.json",
        )  # fmt: skip
        port = self.ports[name] = free_port()
        made = {
            "orchestrator-public": lambda: orchestrator_plan("public", self.endpoints, files, port),
            "orchestrator-node": lambda: orchestrator_plan("node", self.endpoints, files, port),
            "issuer": lambda: issuer_plan(self.endpoints, files, port),
            "relay": lambda: relay_plan(self.endpoints, port),
            "worker": lambda: worker_plan(self.endpoints, files, port),
            "webhooks": lambda: webhooks_plan(self.endpoints, files, port),
        }[name]()
        return replace(made, environment={"PYTHONPATH": str(deployment.ROOT), **made.environment})

    def start(self, name: str) -> None:
        """Start a service and wait until it is healthy."""
        plan = self.plan(name)
        log = self.directory / f"{name}.log"
        environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **plan.environment}
        with log.open("ab") as output:
            process = self.running[name] = subprocess.Popen(
                [*restricted(name, self.secrets), *plan.command], env=environment, stdout=output, stderr=output, cwd="/"
            )
        wait_for(lambda: process.poll() is not None or self.is_healthy(name), f"{name} to be healthy")
        assert process.poll() is None, log.read_text()

    def is_healthy(self, name: str) -> bool:
        """What the health check of the service asks."""
        try:
            return get(self.ports[name], "/ok")[0] == 200
        except NO_ANSWER:
            return False

    def stop(self) -> None:
        """End every process."""
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait(30)


@pytest.fixture(scope="module")
def containers(
    postgres_server: LocalPostgres, migrated_template: str, temporal_server: LocalTemporal, server_directory: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Containers]:  # fmt: skip
    """Every service of ours that keeps running, over one database."""
    nats = LocalNats(server_directory / "restricted-nats", free_port(), free_port())
    nats.start()
    with copied_database(postgres_server, migrated_template) as url:
        endpoints = Endpoints(url, nats.url, temporal_server.address, free_port(), free_port(), as_roles(url))
        found = Containers(tmp_path_factory.mktemp("restricted"), endpoints)
        try:
            for name in SERVICES:
                found.start(name)
            yield found
        finally:
            found.stop()
            nats.stop()


def test_every_service_of_ours_that_keeps_running_is_here() -> None:
    kept = {name for name, service in deployment.our_services().items() if service.get("restart") == "unless-stopped"}
    assert kept == SERVICES.keys() | BY_PROFILE


@pytest.mark.full
def test_allocations_live_and_end_with_every_process_restricted(containers: Containers) -> None:
    url = containers.endpoints.database_url
    seeded = seed(url)
    allocation = create_allocation(url, seeded)
    play_nodes(url, {allocation: "active"})
    release_all(url, seeded, [allocation])
    play_nodes(url, {allocation: "released"})
    assert all(containers.is_healthy(name) for name in SERVICES)
    for name in SERVICES:
        log = (containers.directory / f"{name}.log").read_text()
        assert "Read-only file system" not in log, name
        assert "Permission denied" not in log, name


@pytest.mark.full
@pytest.mark.parametrize("name", SERVICES)
def test_a_process_has_no_root_and_no_capabilities(containers: Containers, name: str) -> None:
    status = status_of(containers.running[name].pid)
    sets = {kind: int(status[kind], 16) for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    assert set(sets.values()) == {0}
    assert status["NoNewPrivs"].strip() == "1"


def test_only_declared_paths_are_writable(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    deployment.make_secrets(secrets)
    paths = ["/", "/etc", "/var/tmp", "/run", str(SECRETS), str(deployment.ROOT), sys.prefix, "/tmp", "/home", "/opt"]
    for name in SERVICES:
        done = subprocess.run(
            [*restricted(name, secrets), sys.executable, "-c", PROBE, *paths], capture_output=True, text=True, check=True
        )  # fmt: skip
        assert done.stdout.split() == ["/tmp"], name


def test_a_service_that_is_not_read_only_would_be_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The restriction comes from the compose file and from nothing else."""
    services: dict[str, dict[str, Any]] = deployment.services()
    changed = {**services, "worker": {**services["worker"], "read_only": False}}
    monkeypatch.setattr(deployment, "services", lambda: changed)
    assert "--bind" in restricted("worker", tmp_path)
    assert "--bind" not in restricted("relay", tmp_path)
