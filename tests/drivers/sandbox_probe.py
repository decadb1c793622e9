"""The outside view of a node with the sandbox driver: /proc, the files below its directory, a real SSH client."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import asyncssh

from node_agent.protocol import Connection
from tests.drivers.harness import Probe
from tests.drivers.processes_seen import content, processes_of_allocations, traces_of
from tests.node_agent.agents import Tenant


class SandboxProbe(Probe):
    """One node's directory, and the tenant that logs in."""

    def __init__(self, directory: Path, tenant: Tenant) -> None:
        self._directory = directory
        self._tenant = tenant

    def processes(self) -> dict[UUID, set[int]]:
        return processes_of_allocations(self._directory / "allocations")

    def files(self) -> set[UUID]:
        allocations = self._directory / "allocations"
        return {UUID(path.name) for path in allocations.iterdir()} if allocations.exists() else set()

    def leases(self) -> dict[int, UUID]:
        return {
            int(path.stem.removeprefix("slot-")): UUID(json.loads(path.read_text())["allocation_id"])
            for path in (self._directory / "leases").glob("slot-*")
        }

    def snapshot(self) -> object:
        files = content(self._directory)
        return {
            "files": {name: what for name, what in files.items() if not name.startswith("leases/")},
            "leases": self.leases(),
            "processes": self.processes(),
        }

    async def answers(self, connection: Connection, allocation_id: UUID) -> bool:
        try:
            said = await self._tenant.run(connection, "echo $BERTH_ALLOCATION_ID")
        except (OSError, asyncssh.Error):
            return False
        return said.strip() == str(allocation_id)

    async def plant(self, connection: Connection, marker: str) -> None:
        daemon = f"setsid sh -c 'sleep 1000; echo {marker}' >/dev/null 2>&1 </dev/null &"
        await self._tenant.run(connection, f"mkdir -p deep/{marker}; echo {marker} > deep/file; chmod 0 deep; {daemon}")

    async def remains(self, connection: Connection, marker: str) -> bool:
        try:
            return marker in await self._tenant.run(connection, "chmod 700 deep; cat deep/file; chmod 0 deep")
        except (OSError, asyncssh.Error):
            return False

    def traces(self, marker: str) -> list[str]:
        return traces_of(marker, self._directory)
