"""What the sweepers act upon: allocations past their deadline, and nodes that fell silent."""

from __future__ import annotations

from uuid import UUID

from orchestrator.execution import Context
from orchestrator.store import sweeping
from orchestrator.store.sweeping import Overdue


async def find_overdue_allocations(context: Context, grace_seconds: float, limit: int) -> list[Overdue]:
    """At most `limit` allocations whose wait ended more than `grace_seconds` ago, the earliest first."""
    async with context.database.reading() as reading:
        return await sweeping.find_overdue(reading, grace_seconds, limit)


async def find_silent_nodes(context: Context, silent_seconds: float, limit: int) -> list[UUID]:
    """At most `limit` nodes marked online but not heard of for `silent_seconds`, the longest silent first."""
    async with context.database.reading() as reading:
        return await sweeping.find_silent_nodes(reading, silent_seconds, limit)
