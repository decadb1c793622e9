"""confirmed -> cancelled, because its allocation cannot be started: its node is out of service, or was silent for too long,
and no equal one is free.
"""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.reservation_refusals import ResourceOutOfService
from orchestrator.domain.reservations import ReservationState
from orchestrator.domain.states import Actor, ActorKind
from orchestrator.execution import Context, transact
from orchestrator.store.database import Transaction
from orchestrator.store.reservations import ReservationChange, advance_reservation_if, lock_reservation
from orchestrator.store.starting import find_stopped_claim, may_wait_for_node


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
