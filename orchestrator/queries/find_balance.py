"""What is left to tenants, and whose balance is to be looked at."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.balances import Standing
from orchestrator.execution import Context
from orchestrator.store import balances
from orchestrator.store.database import Database


async def find_balance(database: Database, tenant_id: UUID) -> Standing:
    """One tenant's, now. Raises `NotFound`."""
    async with database.reading() as reading:
        return await balances.read_standing(reading, tenant_id)


async def find_due_balances(context: Context, limit: int) -> list[UUID]:
    """At most `limit` tenants whose balance is to be looked at by now, the earliest first."""
    async with context.database.reading() as reading:
        return await balances.find_due(reading, limit)


async def find_running_allocations(context: Context, tenant_id: UUID, limit: int) -> list[UUID]:
    """At most `limit` of the tenant's metered allocations that are active, the longest first."""
    async with context.database.reading() as reading:
        return await balances.find_running(reading, tenant_id, limit)


async def find_late_seconds(context: Context) -> float:
    """How long ago the balance that is most overdue was to be looked at; not positive if none is."""
    async with context.database.glance() as reading:
        return await balances.find_late_seconds(reading)
