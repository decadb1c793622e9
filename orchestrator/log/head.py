"""The log's head as this process knows it: one question at a time, however many want to know."""

from __future__ import annotations

import asyncio

from orchestrator.database.transactions import Database
from orchestrator.log.commands.sequence import sequence_events
from orchestrator.log.refusals import VersionNotReached
from orchestrator.log.store.head import Head

PAUSE_SECONDS = 0.005
PAUSE_SECONDS_MAX = 0.1


class LogHead:
    """Asks the database where the log ends, after sequencing what waits.

    `wait_seconds_max`: how long a version is waited for that is not there yet.
    """

    def __init__(self, database: Database, wait_seconds_max: float) -> None:
        self._database = database
        self._wait_seconds_max = wait_seconds_max
        self._known = 0
        self._asking: asyncio.Task[Head] | None = None
        self._next: asyncio.Task[Head] | None = None

    async def fresh(self) -> Head:
        """The head, asked for after this call began: at least as new as every write acknowledged before it.

        Who comes while a question is under way shares the next one. Raises what `sequence_events` raises.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._ask_after(self._asking))
            self._next.add_done_callback(_retrieve)
        return await asyncio.shield(self._next)

    async def reach(self, version: int) -> None:
        """Return when what is read from now on includes this version. Raises `VersionNotReached`, and as `fresh`."""
        if version <= self._known:
            return
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + self._wait_seconds_max, PAUSE_SECONDS
        while (head := await self.fresh()).version < version:
            left = deadline - loop.time()
            if left <= 0:
                raise VersionNotReached(
                    f"the log is at version {head.version}; {version} was waited for {self._wait_seconds_max:g} s",
                    version=head.version,
                    min_version=version,
                )
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def forget(self) -> None:
        """What answers next may be another server, which is behind."""
        self._known = 0

    async def _ask_after(self, asking: asyncio.Task[Head] | None) -> Head:
        if asking is not None:
            await asyncio.wait([asking])
        self._asking, self._next = self._next, None
        head = await sequence_events(self._database)
        self._known = head.version
        return head


def _retrieve(asked: asyncio.Task[Head]) -> None:
    """Whoever asked may be gone; its failure is nobody's then."""
    if not asked.cancelled():
        asked.exception()
