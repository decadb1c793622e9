"""hold -> expired, when nobody confirmed it before its deadline and no rival needed its units (P5, P9)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.allocations.states import Actor, ActorKind
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, transact
from orchestrator.reservations.store.overdue import delete_retired, expire_if_overdue, release_if_over


async def expire_reservation(context: Context, reservation_id: UUID) -> bool:
    """Expire it if it is a hold past its deadline, judged after its locks; answers whether it did."""

    async def work(tx: Transaction) -> bool:
        actor = Actor(ActorKind.WORKER, "sweeper")
        return await expire_if_overdue(tx, reservation_id, context.limits.reservation_retention_seconds, actor)

    return await transact(context, work)


async def end_window(context: Context, reservation_id: UUID) -> bool:
    """Release it if its confirmed window is over, judged after its locks; answers whether it did."""

    async def work(tx: Transaction) -> bool:
        actor = Actor(ActorKind.WORKER, "sweeper")
        return await release_if_over(tx, reservation_id, context.limits.reservation_retention_seconds, actor)

    return await transact(context, work)


async def retire_reservations(context: Context, limit: int) -> int:
    """Forget at most `limit` whose record was kept long enough, the earliest first; answers how many there were.

    Their ids answer `reservation_retired` from then on, for ever.
    """

    async def work(tx: Transaction) -> int:
        return await delete_retired(tx, limit)

    return await transact(context, work)
