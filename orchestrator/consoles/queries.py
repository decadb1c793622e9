"""Reads of console sessions, outside commands."""

from __future__ import annotations

from uuid import UUID

from orchestrator.consoles import store
from orchestrator.operations.execution import Context


async def find_unsigned(context: Context, limit: int) -> list[UUID]:
    """At most `limit` open sessions whose task is not issued, the oldest first."""
    async with context.database.read_one() as reading:
        return await store.find_unsigned(reading, limit)


async def find_lost(context: Context, silent_seconds: float, limit: int) -> list[UUID]:
    """At most `limit` open sessions whose process is silent, or that nothing ended in time."""
    async with context.database.read_one() as reading:
        return await store.find_lost(reading, silent_seconds, limit)
