"""Lets a break-glass key authenticate a request only after the event of its use is committed.

One event per key and `INTERVAL_SECONDS`: later uses within it are covered by that event. Without the event the request is
refused, so there is no use that no event reports.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from orchestrator.database.transactions import Database, TransactionConflict
from orchestrator.problems import DatabaseUnavailable, Problem
from orchestrator.tenants.principals import Principal

INTERVAL_SECONDS: Final = 60.0
Note = Callable[[Database, Principal, str | None], Awaitable[float]]
"""Writes the event if it is due; returns the seconds until the next one is."""


class BreakGlassUses:
    """The keys whose use is covered by a committed event, each until when. `database` serves no requests."""

    def __init__(self, database: Database, note: Note) -> None:
        self._database = database
        self._note = note
        self._covered: dict[UUID, float] = {}
        self._writing = asyncio.Lock()

    async def require_event(self, principal: Principal, source: str | None) -> None:
        """Return when an event covers this use from the address `source`. Raises `DatabaseUnavailable` if none can be written."""
        if self._is_covered(principal.id):
            return
        async with self._writing:
            if self._is_covered(principal.id):
                return
            began = time.monotonic()
            try:
                seconds = await self._note(self._database, principal, source)
            except (Problem, TransactionConflict) as error:
                raise DatabaseUnavailable(
                    "the use of this break-glass key could not be recorded, so nothing was done; retry"
                ) from error
            self._covered[principal.id] = began + seconds

    def _is_covered(self, key_id: UUID) -> bool:
        return self._covered.get(key_id, 0.0) > time.monotonic()
