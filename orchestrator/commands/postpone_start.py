"""A reservation that was to start by itself waits for its silent node, for a bounded time (docs/reservations.md)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.reservations import ReservationState
from orchestrator.execution import Context, transact
from orchestrator.store.database import Transaction
from orchestrator.store.reservations import lock_reservation
from orchestrator.store.starting import find_stopped_claim, may_wait_for_node, wait_for_node


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
