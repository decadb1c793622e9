"""What the sweepers act upon: waits past their deadline or whose workflow may be gone, and nodes that fell silent."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from orchestrator.allocations.store import due as rescuing
from orchestrator.allocations.store import sweeps as sweeping
from orchestrator.allocations.store.due import Waiter
from orchestrator.allocations.store.sweeps import Overdue
from orchestrator.operations.execution import Context
from orchestrator.reservations.store import overdue as overdue_reservations


async def find_overdue_allocations(context: Context, grace_seconds: float, limit: int) -> list[Overdue]:
    """At most `limit` allocations whose wait ended more than `grace_seconds` ago, the earliest first."""
    async with context.database.reading() as reading:
        return await sweeping.find_overdue(reading, grace_seconds, limit)


async def find_expired_tasks(context: Context, grace_seconds: float, limit: int) -> list[UUID]:
    """At most `limit` live tasks whose time ended more than `grace_seconds` ago, the earliest first."""
    async with context.database.reading() as reading:
        return await rescuing.find_expired_tasks(reading, grace_seconds, limit)


async def find_waiters(
    context: Context, *, consumer: str, patience_seconds: float, after: tuple[datetime, UUID], limit: int
) -> list[Waiter]:
    """At most `limit` waits older than `patience_seconds`, in the order of their deadlines, from `after` on."""
    async with context.database.reading() as reading:
        return await rescuing.find_waiters(
            reading, consumer=consumer, patience_seconds=patience_seconds, after=after, limit=limit
        )


async def find_silent_nodes(context: Context, silent_seconds: float, limit: int) -> list[UUID]:
    """At most `limit` nodes marked online but not heard of for `silent_seconds`, the longest silent first."""
    async with context.database.reading() as reading:
        return await sweeping.find_silent_nodes(reading, silent_seconds, limit)


async def find_overdue_holds(context: Context, limit: int) -> list[UUID]:
    """At most `limit` holds past their deadline, the earliest first."""
    async with context.database.reading() as reading:
        return await overdue_reservations.find_overdue_holds(reading, limit)


async def find_windows_over(context: Context, limit: int) -> list[UUID]:
    """At most `limit` confirmed windows that have passed, the earliest first."""
    async with context.database.reading() as reading:
        return await overdue_reservations.find_windows_over(reading, limit)
