"""hold -> expired, when nobody confirmed it before its deadline and no rival needed its units (P5, P9)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.states import Actor, ActorKind
from orchestrator.execution import Context, transact
from orchestrator.store.database import Transaction
from orchestrator.store.overdue_reservations import expire_if_overdue


async def expire_reservation(context: Context, reservation_id: UUID) -> bool:
    """Expire it if it is a hold past its deadline, judged after its locks; answers whether it did."""

    async def work(tx: Transaction) -> bool:
        actor = Actor(ActorKind.WORKER, "sweeper")
        return await expire_if_overdue(tx, reservation_id, context.limits.reservation_retention_seconds, actor)

    return await transact(context, work)
