"""Postpones or fails the start of a reservation's template whose node is out of service (docs/reference/reservations.md)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, transact
from orchestrator.reservations.refusals import ResourceOutOfService
from orchestrator.reservations.states import ReservationState
from orchestrator.reservations.store.reservations import ReservationEnd, end_reservation, lock_reservation
from orchestrator.reservations.store.starting import find_stopped_claim, may_wait_for_node, wait_for_node
from orchestrator.tenants.principals import Actor, ActorKind


async def postpone_start(context: Context, reservation_id: UUID) -> bool:
    """Let the start wait for its offline node, with event `reservation.waiting`; return whether it waits, evaluated after locks.

    It waits at most `units_seconds_max`, and not beyond its window. False if that time has passed, the start is possible, or
    an operator took its units out of service.
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
    """Fail a due start that can wait no longer, evaluated after its locks; return whether it failed.

    Its remaining units are free at once; event `reservation.failed` contains the reason.
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
        change = ReservationEnd(
            ReservationState.CANCELLED,
            context.limits.reservation_retention_seconds,
            failure=(ResourceOutOfService.code, f"{claim.reason}, and no equal node is free for its window"),
        )
        await end_reservation(tx, subject, change, Actor(ActorKind.WORKER, "starts_at"))
        return True

    return await transact(context, work)
