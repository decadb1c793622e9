"""The outside view of a node with the template's driver: its files, the arguments of processes, a TCP client."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from node_agent.protocol import Connection
from tests.drivers.harness import Probe
from tests.drivers.processes_seen import content, processes_of_allocations, traces_of


class TemplateProbe(Probe):
    """One node's directory. Its guests have no logins: what a tenant would leave is put there by the probe."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def processes(self) -> dict[UUID, set[int]]:
        return processes_of_allocations(self._directory / "allocations")

    def files(self) -> set[UUID]:
        allocations = self._directory / "allocations"
        return {UUID(path.name) for path in allocations.iterdir()} if allocations.exists() else set()

    def leases(self) -> dict[int, UUID]:
        leases = (self._directory / "leases").glob("[0-9]*")
        return {int(path.name): UUID(json.loads(path.read_text())["allocation_id"]) for path in leases}

    def snapshot(self) -> object:
        return {"files": content(self._directory), "processes": self.processes()}

    async def answers(self, connection: Connection, allocation_id: UUID) -> bool:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(connection.host, connection.port)
            try:
                said = (await reader.readline()).strip()
            finally:
                writer.close()
            return said == base64.b64decode(connection.host_key.split()[1])
        return False

    async def plant(self, connection: Connection, marker: str) -> None:
        for directory in self._directories(connection):
            (directory / marker).write_text(marker)
            subprocess.Popen(["tail", "-f", str(directory / marker)], start_new_session=True)

    async def remains(self, connection: Connection, marker: str) -> bool:
        return any((directory / marker).exists() for directory in self._directories(connection))

    def traces(self, marker: str) -> list[str]:
        return traces_of(marker, self._directory)

    def _directories(self, connection: Connection) -> Iterator[Path]:
        """The directory of the guest that has this secret."""
        secret = base64.b64decode(connection.host_key.split()[1])
        for path in (self._directory / "allocations").iterdir():
            if (path / "secret").read_bytes() == secret:
                yield path
