"""The log's head as this process knows it: one question at a time, however many want to know."""

from __future__ import annotations

import asyncio
from contextvars import Context

from orchestrator.commands.sequence_events import sequence_events
from orchestrator.store.database import Database
from orchestrator.store.log_head import Head


class LogHead:
    """Asks the database where the log ends, after sequencing what waits."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asking: asyncio.Task[Head] | None = None
        self._next: asyncio.Task[Head] | None = None

    async def fresh(self) -> Head:
        """The head, asked for after this call began: at least as new as every write acknowledged before it.

        Who comes while a question is under way shares the next one. Raises what `sequence_events` raises.
        """
        if self._next is None:
            # In a context of its own: it is nobody's request.
            self._next = asyncio.create_task(self._ask_after(self._asking), context=Context())
            self._next.add_done_callback(_retrieve)
        return await asyncio.shield(self._next)

    async def _ask_after(self, asking: asyncio.Task[Head] | None) -> Head:
        if asking is not None:
            await asyncio.wait([asking])
        self._asking, self._next = self._next, None
        return await sequence_events(self._database)


def _retrieve(asked: asyncio.Task[Head]) -> None:
    """Whoever asked may be gone; its failure is nobody's then."""
    if not asked.cancelled():
        asked.exception()
