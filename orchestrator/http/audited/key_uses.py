"""Stores when each API key was last used, outside the requests.

A request only notes its key in memory. Once a minute each process writes what it has noted, and a stored time is replaced only
by one that is a minute later: a key costs at most one write per minute, however many processes serve it. A stored time is at
most two minutes older than the last use; a process that is killed loses what it has noted since.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

import structlog

from orchestrator.database.transactions import Database, TransactionConflict
from orchestrator.problems import Problem
from orchestrator.tenants.queries import note_key_uses

FLUSH_SECONDS: Final = 60.0
LEAST_SECONDS: Final = 60.0
"""Least distance between two stored times of a key."""
KEYS_MAX: Final = 10_000
"""Keys that are noted between two writes; the uses of further ones are not stored."""
STOP_SECONDS: Final = 5.0

log = structlog.get_logger("orchestrator.api")


class KeyUses:
    """The noted uses, and the task that writes them. The caller closes `database`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._used: dict[UUID, float] = {}
        self._stopped = asyncio.Event()

    def note(self, key_id: UUID) -> None:
        """The key authenticates a request now."""
        if key_id in self._used or len(self._used) < KEYS_MAX:
            self._used[key_id] = time.monotonic()

    async def flush(self) -> int:
        """Write what is noted; return how many rows it wrote. Raises a `Problem` or `TransactionConflict`: then it is lost."""
        used, self._used = self._used, {}
        if not used:
            return 0
        now = time.monotonic()
        return await note_key_uses(self._database, {key: now - at for key, at in used.items()}, LEAST_SECONDS)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write while the block lasts; then write what is left, for at most `STOP_SECONDS`."""
        task = asyncio.create_task(self._serve())
        task.add_done_callback(_died)
        try:
            yield
        finally:
            self._stopped.set()
            await asyncio.wait([task], timeout=STOP_SECONDS)
            task.cancel()
            await asyncio.wait([task])

    async def _serve(self) -> None:
        while not self._stopped.is_set():
            await _set_or_after(self._stopped, FLUSH_SECONDS)
            try:
                await self.flush()
            except (Problem, TransactionConflict) as error:
                log.warning("key_uses_lost", why=str(error))


async def _set_or_after(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or after so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


def _died(task: asyncio.Task[None]) -> None:
    """End the process: without this task, no last use of a key would be stored."""
    if not task.cancelled() and task.exception() is not None:
        log.critical("last uses of API keys are no longer written; ending the process", exc_info=task.exception())
        raise SystemExit(1)
