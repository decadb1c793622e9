"""The head of the log in this process: concurrent requests share one query (single-flight)."""

from __future__ import annotations

import asyncio

from orchestrator.database.transactions import Database
from orchestrator.log.commands import sequence_events
from orchestrator.log.refusals import VersionNotReached
from orchestrator.log.store.head import Head

PAUSE_SECONDS = 0.005
PAUSE_SECONDS_MAX = 0.1


class LogHead:
    """Sequences waiting events and reads the head of the log. `wait_seconds_max`: the longest wait for a future version."""

    def __init__(self, database: Database, wait_seconds_max: float) -> None:
        self._database = database
        self._wait_seconds_max = wait_seconds_max
        self._known = 0
        self._reading: asyncio.Task[Head] | None = None
        self._next: asyncio.Task[Head] | None = None

    async def fresh(self) -> Head:
        """Return a head read after this call began: at least as new as every write acknowledged before.

        Calls that arrive during a query share the next one. Raises as `sequence_events`.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._read_after(self._reading))
            self._next.add_done_callback(_retrieve)
        return await asyncio.shield(self._next)

    def includes(self, version: int) -> bool:
        """Whether this version is known to be in the log: `reach` returns at once."""
        return version <= self._known

    async def reach(self, version: int) -> None:
        """Return when subsequent reads include this version. Raises `VersionNotReached`, and as `fresh`."""
        if self.includes(version):
            return
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + self._wait_seconds_max, PAUSE_SECONDS
        while (head := await self.fresh()).version < version:
            left = deadline - loop.time()
            if left <= 0:
                raise VersionNotReached(
                    f"the log is at {head.version}, not {version}, after {self._wait_seconds_max:g} s; retry later",
                    version=head.version,
                    min_version=version,
                )
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def forget(self) -> None:
        """Forget the known head: the next answer may be from another server, which is behind."""
        self._known = 0

    async def _read_after(self, reading: asyncio.Task[Head] | None) -> Head:
        if reading is not None:
            await asyncio.wait([reading])
        self._reading, self._next = self._next, None
        head = await sequence_events(self._database)
        self._known = head.version
        return head


def _retrieve(reading: asyncio.Task[Head]) -> None:
    # The caller may have been cancelled; its failure must not be logged as unretrieved.
    if not reading.cancelled():
        reading.exception()
