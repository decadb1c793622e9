"""Ends holds past their deadline for whoever finds no room because of them, before he is refused (P5).

Each in a transaction of its own, a bounded number, the earliest deadline first.
"""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.states import Actor, ActorKind
from orchestrator.execution import Context, transact
from orchestrator.store.database import Transaction
from orchestrator.store.overdue_reservations import expire_if_overdue, find_overdue_holds

ENDED_MAX = 32
_RIVAL = Actor(ActorKind.SYSTEM, "rival")


async def end_overdue_holds(context: Context, *, tenant_id: UUID | None = None, pool_id: int | None = None) -> int:
    """End at most 32 holds that are overdue, of a tenant or with units of a pool if named; how many it ended."""
    async with context.database.glance() as reading:
        found = await find_overdue_holds(reading, ENDED_MAX, tenant_id=tenant_id, pool_id=pool_id)
    return sum([await _end(context, reservation_id) for reservation_id in found])


async def _end(context: Context, reservation_id: UUID) -> bool:
    async def work(tx: Transaction) -> bool:
        return await expire_if_overdue(tx, reservation_id, context.limits.reservation_retention_seconds, _RIVAL)

    return await transact(context, work)
