"""A reservation that was to start by itself waits for its silent node, for a bounded time (docs/reference/reservations.md)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.allocations.states import Actor, ActorKind
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, transact
from orchestrator.reservations.refusals import ResourceOutOfService
from orchestrator.reservations.states import ReservationState
from orchestrator.reservations.store.reservations import ReservationChange, advance_reservation_if, lock_reservation
from orchestrator.reservations.store.starting import find_stopped_claim, may_wait_for_node, wait_for_node


async def postpone_start(context: Context, reservation_id: UUID) -> bool:
    """Whether it waits for a node now, judged after its locks: from now on, with event `reservation.waiting`, or already.

    For `units_seconds_max` at most, and not beyond its window. False if its time is over, or it can be started, or an
    operator took its units out of service.
    """

    async def work(tx: Transaction) -> bool:
        subject = await lock_reservation(tx, reservation_id, None)
        if subject is None or subject.state is not ReservationState.CONFIRMED or subject.template is None:
            return False
        if not subject.begun or subject.over:
            return False
        claim = await find_stopped_claim(tx, reservation_id)
        if claim is None:
            return False
        may_wait, waits = await may_wait_for_node(tx, subject, claim)
        if may_wait and not waits:
            await wait_for_node(tx, subject, claim, context.limits.units_seconds_max)
        return may_wait

    return await transact(context, work)


async def fail_reservation(context: Context, reservation_id: UUID) -> bool:
    """Fail it if it was to start by itself by now and can wait no longer, judged after its locks; answers whether it did.

    Whatever it still holds is free at once; event `reservation.failed` says why.
    """

    async def work(tx: Transaction) -> bool:
        subject = await lock_reservation(tx, reservation_id, None)
        if subject is None or subject.state is not ReservationState.CONFIRMED or subject.template is None:
            return False
        if not subject.begun or subject.over:
            return False
        claim = await find_stopped_claim(tx, reservation_id)
        if claim is None:
            return False
        may_wait, _ = await may_wait_for_node(tx, subject, claim)
        if may_wait:
            return False
        change = ReservationChange(
            ReservationState.CANCELLED,
            context.limits.reservation_retention_seconds,
            failure=(ResourceOutOfService.code, f"{claim.reason}, and no equal node is free for its window"),
        )
        await advance_reservation_if(tx, subject, change, Actor(ActorKind.WORKER, "starts_at"))
        return True

    return await transact(context, work)
