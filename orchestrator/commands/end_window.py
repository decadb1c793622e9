"""confirmed -> released, when a window is over and nobody used it (P9)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.states import Actor, ActorKind
from orchestrator.execution import Context, transact
from orchestrator.store.database import Transaction
from orchestrator.store.overdue_reservations import release_if_over


async def end_window(context: Context, reservation_id: UUID) -> bool:
    """Release it if its confirmed window is over, judged after its locks; answers whether it did."""

    async def work(tx: Transaction) -> bool:
        actor = Actor(ActorKind.WORKER, "sweeper")
        return await release_if_over(tx, reservation_id, context.limits.reservation_retention_seconds, actor)

    return await transact(context, work)
