"""Reads drains, outside commands."""

from __future__ import annotations

from uuid import UUID

from orchestrator.nodes.store import drains
from orchestrator.nodes.store.drains import ToRelease
from orchestrator.operations.execution import Context


async def find_due_drains(context: Context, limit: int) -> list[UUID]:
    """At most `limit` draining nodes that are empty or whose deadline has come."""
    async with context.database.reading() as reading:
        return await drains.find_due(reading, limit)


async def find_allocations_to_release(context: Context, after: int, limit: int) -> list[ToRelease]:
    """At most `limit` allocations that overdue drains release, by claim, after this one."""
    async with context.database.reading() as reading:
        return await drains.find_to_release(reading, after, limit)
