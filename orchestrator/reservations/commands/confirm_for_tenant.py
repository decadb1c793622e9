"""An operator's confirm of a tenant's hold; audited, and its event contains the operator's id (docs/reservations.md)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.allocations.states import Actor
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import InvalidState
from orchestrator.reservations.overdue import expire_for_confirm
from orchestrator.reservations.refusals import HolderMismatch
from orchestrator.reservations.states import ReservationState, Result
from orchestrator.reservations.store.reservations import ReservationChange, advance_reservation_if, lock_reservation
from orchestrator.reservations.store.rows import read_reservation, why_missing


async def confirm_for_tenant(
    context: Context, operation: Operation, actor: Actor, tenant_id: UUID, reservation_id: UUID, holder_id: str
) -> Answer:
    """Return 200 with the reservation; refusals are those of the holder's confirm, stored with the operator's key.

    Takes the locks of all its claims, because an overdue hold expires here.
    """

    async def effect(tx: Transaction) -> Done:
        subject = await lock_reservation(tx, reservation_id, tenant_id)
        if subject is None:
            raise await why_missing(tx, reservation_id, context.limits.shard)
        if subject.holder_id != holder_id:
            raise HolderMismatch.of_reservation()
        if subject.overdue:
            return await expire_for_confirm(tx, operation, actor, tenant_id, reservation_id, context.limits)
        if not subject.live:
            raise InvalidState(f"the reservation is {subject.state}; only a hold can be confirmed", state=subject.state)
        result = Result.OK if subject.state is ReservationState.HOLD else Result.NOOP
        if result is Result.OK:
            change = ReservationChange(
                ReservationState.CONFIRMED,
                context.limits.reservation_retention_seconds,
                payload={"actor_id": actor.id},
                operation_key=operation.key,
                request_id=operation.request_id,
            )
            await advance_reservation_if(tx, subject, change, actor)
        await audit.record(tx, actor, "reservation.confirm", subject.name, {"result": result}, operation.request_id)
        return Done(200, await read_reservation(tx, reservation_id, None, result), reservation_id, code=result)

    return await run_once(context, operation, effect, None)
