"""Reads of what is left of restores."""

from __future__ import annotations

from orchestrator.operations.execution import Context
from orchestrator.restores import store
from orchestrator.restores.store import Replay


async def find_replays(context: Context, limit: int) -> list[Replay]:
    """At most `limit` releases and cancels of lost intervals that are to be done again."""
    async with context.database.reading() as reading:
        return await store.find_replays(reading, limit)
