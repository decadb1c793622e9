"""Expires overdue holds inline, when a rival finds no room (P5).

Each hold expires in a separate transaction, a bounded number, the earliest deadline first.
"""

from __future__ import annotations

from uuid import UUID

from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, transact
from orchestrator.reservations.store.overdue import expire_if_overdue, find_overdue_holds
from orchestrator.tenants.principals import Actor, ActorKind

EXPIRED_MAX = 32
_RIVAL = Actor(ActorKind.SYSTEM, "rival")


async def expire_overdue_holds(context: Context, *, tenant_id: UUID | None = None, pool_id: int | None = None) -> int:
    """Expire at most 32 overdue holds, of a tenant or with units of a pool if given; return how many expired.

    An act of the platform on behalf of a rival: the holds may be of any tenant.
    """
    context = context.for_platform()
    async with context.database.read_one() as reading:
        found = await find_overdue_holds(reading, EXPIRED_MAX, tenant_id=tenant_id, pool_id=pool_id)
    return sum([await _expire(context, reservation_id) for reservation_id in found])


async def _expire(context: Context, reservation_id: UUID) -> bool:
    async def work(tx: Transaction) -> bool:
        return await expire_if_overdue(tx, reservation_id, context.limits.reservation_retention_seconds, _RIVAL)

    return await transact(context, work)
