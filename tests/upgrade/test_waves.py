"""`berth node upgrade` on agents of the last release: waves, a version that does not start, rollback, and the whole fleet.

The command of a node asks this process, as an operator's command asks the node, to restart the agent with other code.
"""

from __future__ import annotations

import json
import os
import shlex
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import asyncssh
import pytest

from berth.client import Allocation, Client
from tests.support.shell import Shell
from tests.support.waiting import wait_for
from tests.upgrade.stage import UpgradeStage

RELEASE, PRESENT = "0.2.0", "0.3.0"
COMMAND = 'printf "%s {}\\n" "$BERTH_NODE" > asked && read -r answer < "answers/$BERTH_NODE" && test "$answer" = done'
END = "end"


def present_code(directory: Path) -> Mapping[str, str]:
    """The variables of the present code, which is installed with the version of the release, as the next version."""
    metadata = directory / f"berth-{PRESENT}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: berth\nVersion: {PRESENT}\n")
    return {"PYTHONPATH": str(directory)}


def broken_code(directory: Path) -> Mapping[str, str]:
    """The variables of code whose agent ends at once."""
    module = directory / "node_agent" / "__init__.py"
    module.parent.mkdir(parents=True)
    module.write_text("raise SystemExit('this build does not start')\n")
    return {"PYTHONPATH": str(directory)}


class Nodes:
    """What commands of nodes reach. Those named in `broken` get code that does not start instead of the present version."""

    def __init__(self, stage: UpgradeStage, directory: Path) -> None:
        self.stage, self.directory = stage, directory
        self.codes = {
            RELEASE: stage.release, PRESENT: present_code(directory / "present"), "broken": broken_code(directory / "broken"),
        }  # fmt: skip
        self.broken: set[str] = set()
        self.restarts: Counter[tuple[str, str]] = Counter()
        (directory / "answers").mkdir()
        os.mkfifo(directory / "asked")
        for name in stage.agent_directories:
            os.mkfifo(directory / "answers" / name)

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Serve commands until the block ends."""
        serving = threading.Thread(target=self._serve)
        serving.start()
        try:
            yield
        finally:
            (self.directory / "asked").write_text(f"{END} {END}\n")
            serving.join()

    def _serve(self) -> None:
        while True:
            for line in (self.directory / "asked").read_text().splitlines():
                name, version = line.split()
                if name == END:
                    return
                self._restart(name, version)

    def _restart(self, name: str, version: str) -> None:
        answer = "failed"
        try:
            code = "broken" if name in self.broken and version == PRESENT else version
            self.stage.restart(f"agent {name}", self.codes[code])
            self.restarts[name, version] += 1
            answer = "done"
        finally:
            (self.directory / "answers" / name).write_text(f"{answer}\n")

    def versions(self, admin: Client) -> list[str | None]:
        """What the agents of all nodes report, by the node's name."""
        return [node.agent_version for node in sorted(admin.iterate_nodes(), key=lambda node: node.name)]


def rented(stage: UpgradeStage, admin: Client) -> tuple[Client, Allocation]:
    """A tenant's client, and an allocation of it that is active."""
    tenant = admin.create_tenant(name="of the upgrade", gpus_limit=8)
    client = Client(stage.endpoints.api_url, admin.create_api_key(name="k", role="tenant", tenant_id=tenant.id).key)
    public = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
    key = client.add_ssh_key(name="k", public_key=public)
    made = client.create_allocation(sku="h100.slice", gpus=1, region="eu-1", ssh_key_ids=[key.id])
    return client, reached(client, made.allocation_id, "active")


def reached(client: Client, allocation_id: UUID, status: str) -> Allocation:
    """The allocation once it has this status."""
    wait_for(lambda: client.get_allocation(allocation_id).status == status, f"it is {status}", 90)
    return client.get_allocation(allocation_id)


def _health(client: Client, allocation_id: UUID) -> tuple[str, str | None]:
    found = client.get_allocation(allocation_id)
    return found.status, None if found.health is None else found.health.state


@pytest.mark.full
@pytest.mark.timeout(600)
def test_agents_of_a_fleet_are_upgraded_in_waves(server_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = server_directory / "waves"
    (directory / "run").mkdir(parents=True)
    monkeypatch.chdir(directory / "run")
    with UpgradeStage(directory, 4) as stage, stage.admin() as admin:
        client, allocation = rented(stage, admin)
        stage.migrate()
        for name in stage.process_names:
            if name not in stage.agent_names:
                stage.exchange(name)
        nodes = Nodes(stage, directory / "run")
        first, second, third, fourth = sorted(stage.agent_directories)
        nodes.broken = {second}
        shell = Shell(stage.endpoints.api_url, stage.admin_key)
        line = f"node upgrade --to {PRESENT} --run {shlex.quote(COMMAND.format(PRESENT))} --wave 1 --wave 2 --ready-seconds 25"
        line += f" --settle-seconds 2 --rollback {shlex.quote(COMMAND.format(RELEASE))} --output json"

        with nodes.reached():
            halted = shell.run(line)
            assert halted.exit_code == 1, halted.output
            found = json.loads(halted.stdout)
            assert "nodes" in found, found
            outcomes = {one["node"]: one["outcome"] for one in found["nodes"]}
            assert found["halted"].startswith(f"wave 2: {second}: "), found
            assert outcomes[first] == "upgraded"
            assert outcomes[second].endswith("; rolled back"), outcomes
            assert outcomes[third] == "upgraded; rolled back"
            assert outcomes[fourth] == "not begun"
            assert nodes.versions(admin) == [PRESENT, RELEASE, RELEASE, RELEASE]
            assert all(node.online for node in admin.iterate_nodes())

            nodes.broken = set()
            again = shell.run(line)
            assert again.exit_code == 0, again.output
            assert nodes.versions(admin) == [PRESENT] * 4
        assert nodes.restarts[first, PRESENT] == 1, "a repeated run goes on with the others"
        assert nodes.restarts[fourth, RELEASE] == 0

        wait_for(lambda: _health(client, allocation.allocation_id) == ("active", "healthy"), "its guest serves", 60)
        client.release_allocation(allocation.allocation_id)
        reached(client, allocation.allocation_id, "released")
        client.close()
