"""Cancel by the holder or an operator: the reservation's units are free at once (docs/reference/reservations.md)."""

from __future__ import annotations

from typing import assert_never
from uuid import UUID

from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.calls import CallGroup
from orchestrator.database.transactions import TransactionConflict
from orchestrator.operations.execution import TRIES_MAX, Context, remembered
from orchestrator.operations.outcomes import StoredResponse, TryAgain
from orchestrator.operations.store.operations import Answer, Operation, replay
from orchestrator.problems import Overloaded, Problem
from orchestrator.reservations.outcomes import Cancelled, CancelOutcome, Missing
from orchestrator.reservations.queries import why_missing
from orchestrator.reservations.store.cancelling import Cancel, cancel_once
from orchestrator.tenants.principals import Actor, ActorKind


async def cancel_reservation(
    context: Context, operation: Operation, actor: Actor, tenant_id: UUID, reservation_id: UUID, holder_id: str
) -> Answer:
    """Return 200 with the reservation; `noop` if it was cancelled or had expired already, or expires now.

    An operator's cancel is audited, and its event contains the operator's id. Refusals, stored with the key:
    `ReservationNotFound`, `ReservationRetired`, `HolderMismatch`, and `InvalidState` if it was consumed or its window ended.
    """
    cancel = Cancel(operation, actor, tenant_id, reservation_id, holder_id)

    async def run() -> Answer:
        try:
            return await _cancel(context, cancel)
        except Problem as refusal:
            return await remembered(context, operation, refusal, None if actor.kind is ActorKind.ADMIN else tenant_id)

    return await run() if context.gate is None else await context.gate.answer(operation, run)


async def _cancel(context: Context, cancel: Cancel) -> Answer:
    """Try a bounded number of times. Raises its refusal."""
    for _ in range(TRIES_MAX):
        outcome = await _try_once(context, cancel)
        match outcome:
            case Cancelled(body):
                return Answer(200, body, kept_seconds=cancel.operation.retention_seconds)
            case StoredResponse():
                return replay(cancel.operation, outcome)
            case Missing():
                raise await why_missing(context, cancel.reservation_id)
            case TryAgain():
                continue
            case Problem():
                raise outcome
            case _:
                assert_never(outcome)
    raise Overloaded("concurrent requests for the same objects kept this one from running; retry with the same key")


async def _try_once(context: Context, cancel: Cancel) -> CancelOutcome:
    try:
        async with context.database.function_call(CallGroup.RESERVATIONS) as call:
            reach(CrashPoint.CANCEL_RESERVATION_BEFORE_COMMIT)
            outcome = await cancel_once(call, cancel, context.limits.reservation_retention_seconds)
        reach(CrashPoint.CANCEL_RESERVATION_AFTER_COMMIT)
        return outcome
    except TransactionConflict:
        return TryAgain()
