"""Cancel by the holder or an operator: the reservation's units are free at once (docs/reference/reservations.md)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import InvalidState
from orchestrator.reservations.refusals import HolderMismatch
from orchestrator.reservations.states import ReservationState, WriteResult
from orchestrator.reservations.store.reservations import ReservationChange, advance_reservation_if, lock_reservation
from orchestrator.reservations.store.rows import read_reservation, why_missing
from orchestrator.tenants.principals import Actor, ActorKind

_ENDED_UNUSED = frozenset({ReservationState.CANCELLED, ReservationState.EXPIRED})


async def cancel_reservation(
    context: Context, operation: Operation, actor: Actor, tenant_id: UUID, reservation_id: UUID, holder_id: str
) -> Answer:
    """Return 200 with the reservation; `noop` if it was cancelled or had expired already, or expires now.

    An operator's cancel is audited, and its event contains the operator's id. Refusals, stored with the key:
    `ReservationNotFound`, `ReservationRetired`, `HolderMismatch`, and `InvalidState` if it was consumed or its window ended.
    """
    by_operator = actor.kind is ActorKind.ADMIN

    async def effect(tx: Transaction) -> Done:
        subject = await lock_reservation(tx, reservation_id, tenant_id)
        if subject is None:
            raise await why_missing(tx, reservation_id, context.limits.shard)
        if subject.holder_id != holder_id:
            raise HolderMismatch.of_reservation()
        if not subject.live and subject.state not in _ENDED_UNUSED:
            raise InvalidState(
                f"the reservation is {subject.state}; only a hold or a confirmed window can be cancelled",
                state=subject.state,
            )
        result = WriteResult.OK if subject.live and not subject.overdue else WriteResult.NOOP
        if subject.live:
            change = ReservationChange(
                ReservationState.EXPIRED if subject.overdue else ReservationState.CANCELLED,
                context.limits.reservation_retention_seconds,
                payload={"actor_id": actor.id} if by_operator else {},
                operation_key=operation.key,
                request_id=operation.request_id,
            )
            await advance_reservation_if(tx, subject, change, actor)
        if by_operator:
            await audit.record(tx, actor, "reservation.cancel", subject.name, {"result": result}, operation.request_id)
        body = await read_reservation(tx, reservation_id, None, result)
        return Done(200, body, reservation_id, code=result)

    return await run_once(context, operation, effect, None if by_operator else tenant_id)
