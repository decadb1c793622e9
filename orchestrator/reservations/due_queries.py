"""What begins or ends by itself and is due: reservations that start allocations, units to start on, allocations at their end."""

from __future__ import annotations

from uuid import UUID

from orchestrator.allocations.store import due as endings
from orchestrator.operations.execution import Context
from orchestrator.reservations.store import starting


async def find_due_starts(context: Context, limit: int) -> list[UUID]:
    """At most `limit` confirmed reservations whose allocation is to start by itself by now, the earliest first."""
    async with context.database.reading() as reading:
        return await starting.find_due_starts(reading, limit)


async def find_late_starts(context: Context, after: int, limit: int) -> list[tuple[UUID, int]]:
    """At most `limit` reservations whose start waits for a node, by position, those beyond `after`; with the positions."""
    async with context.database.reading() as reading:
        return await starting.find_late_starts(reading, after, limit)


async def find_stranded(context: Context, limit: int) -> list[UUID]:
    """At most `limit` reservations of a SKU that have begun and hold units of nodes out of service."""
    async with context.database.reading() as reading:
        return await starting.find_stranded(reading, limit)


async def find_nodes_to_start(context: Context, limit: int) -> list[UUID]:
    """At most `limit` nodes with allocations that wait for units which nobody occupies."""
    async with context.database.reading() as reading:
        return await starting.find_nodes_to_start(reading, limit)


async def find_ended(context: Context, limit: int) -> list[UUID]:
    """At most `limit` allocations whose time is over, the earliest first."""
    async with context.database.reading() as reading:
        return await endings.find_ended(reading, limit)


async def find_ending(context: Context, limit: int) -> list[UUID]:
    """At most `limit` allocations that end within the notice and whose tenants have not been told, the earliest first."""
    async with context.database.reading() as reading:
        return await endings.find_ending(reading, context.limits.ending_notice_seconds, limit)
