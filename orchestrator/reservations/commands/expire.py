"""The sweepers' commands: expire overdue holds, end past windows, delete reservations past their retention (P5, P9)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, transact
from orchestrator.reservations.store.overdue import delete_retired, expire_if_overdue, release_if_over
from orchestrator.tenants.principals import Actor, ActorKind


async def expire_reservation(context: Context, reservation_id: UUID) -> bool:
    """Expire a hold past its deadline, evaluated after its locks; return whether it expired."""

    async def work(tx: Transaction) -> bool:
        actor = Actor(ActorKind.WORKER, "sweeper")
        return await expire_if_overdue(tx, reservation_id, context.limits.reservation_retention_seconds, actor)

    return await transact(context, work)


async def end_window(context: Context, reservation_id: UUID) -> bool:
    """Release a confirmed window past its end, evaluated after its locks; return whether it was released."""

    async def work(tx: Transaction) -> bool:
        actor = Actor(ActorKind.WORKER, "sweeper")
        return await release_if_over(tx, reservation_id, context.limits.reservation_retention_seconds, actor)

    return await transact(context, work)


async def retire_reservations(context: Context, limit: int) -> int:
    """Delete at most `limit` reservations past their retention, the earliest first; return how many.

    Their ids are refused with `reservation_retired` from then on.
    """

    async def work(tx: Transaction) -> int:
        return await delete_retired(tx, limit)

    return await transact(context, work)
