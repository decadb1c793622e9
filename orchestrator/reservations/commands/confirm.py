"""Confirm by the holder or an operator: a hold becomes a confirmed window, without a deadline (docs/reference/reservations.md).

The holder's confirm is a list in, one answer each: the API batches confirms that arrive together; a list of one is the
ordinary case. An operator's confirm is audited, and its event contains the operator's id.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import assert_never
from uuid import UUID

from sqlalchemy.exc import DBAPIError

from orchestrator.audit import store as audit
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.transactions import Transaction, TransactionConflict
from orchestrator.operations.execution import (
    TRIES_MAX,
    Context,
    Deferred,
    Done,
    Result,
    remembered,
    run_once,
    store_refusals_of,
)
from orchestrator.operations.outcomes import StoredResponse, TryAgain
from orchestrator.operations.store.operations import Answer, Operation, replay
from orchestrator.operations.store.refusals import Refused
from orchestrator.problems import InvalidState, OperationInProgress, Overloaded, Problem
from orchestrator.reservations.outcomes import Confirmed, ConfirmOutcome, Missing, Overdue
from orchestrator.reservations.overdue import expire_for_confirm, refuse_late_confirm
from orchestrator.reservations.refusals import HolderMismatch
from orchestrator.reservations.states import ReservationState, WriteResult
from orchestrator.reservations.store.confirming import Confirm, confirm_once, confirm_together
from orchestrator.reservations.store.reservations import ReservationChange, advance_reservation_if, lock_reservation
from orchestrator.reservations.store.rows import read_reservation, why_missing
from orchestrator.tenants.principals import Actor


async def confirm_reservation(context: Context, confirms: Sequence[Confirm]) -> list[Result | Deferred]:
    """Return one outcome per confirm, in input order: 200 with the reservation (`noop` if it is confirmed already).

    Refusals, stored with the key: `ReservationNotFound`, `ReservationRetired`, `HolderMismatch`, `InvalidState`. A hold past
    its deadline, by the clock after its locks, expires in the transaction that stores the refusal of its confirm.
    One transaction tries the list; items are independent. A confirm whose reservation is locked or overdue is `Deferred`.
    Keys within the list must be distinct per tenant. Raises `DatabaseUnavailable` or `OutcomeUnknown` for the list as a whole.
    """
    results: list[Result | Deferred] = []
    refused: dict[int, Refused] = {}
    for confirm, outcome in zip(confirms, await _try_batch(context, confirms), strict=True):
        if isinstance(outcome, TryAgain | Overdue):
            results.append(Deferred(partial(_confirm_alone, context, confirm)))
            continue
        try:
            results.append(await _settle(context, confirm, outcome))
        except Problem as refusal:
            if refusal.business:
                refused[len(results)] = Refused(confirm.operation, refusal, confirm.tenant_id)
            results.append(refusal)
    for index, answer in zip(refused, await store_refusals_of(context, list(refused.values())), strict=True):
        results[index] = answer
    return results


async def _try_batch(context: Context, confirms: Sequence[Confirm]) -> list[ConfirmOutcome]:
    try:
        async with context.database.autocommit() as tx:
            reach(CrashPoint.CONFIRM_RESERVATION_BEFORE_COMMIT)
            outcomes = await confirm_together(tx, confirms)
        reach(CrashPoint.CONFIRM_RESERVATION_AFTER_COMMIT)
        return outcomes
    except (TransactionConflict, OperationInProgress, DBAPIError):
        return [TryAgain()] * len(confirms)  # one item made the batch fail: each is tried alone


async def _confirm_alone(context: Context, confirm: Confirm) -> Result:
    try:
        return await _settle(context, confirm, TryAgain())
    except Problem as refusal:
        try:
            return await remembered(context, confirm.operation, refusal, confirm.tenant_id)
        except Problem as problem:
            return problem


async def _settle(context: Context, confirm: Confirm, outcome: ConfirmOutcome) -> Answer:
    """The answer to one confirm; on `TryAgain` it is tried alone, a bounded number of times. Raises its refusal."""
    for _ in range(1 + TRIES_MAX):
        match outcome:
            case Confirmed(body):
                return Answer(200, body, kept_seconds=confirm.operation.retention_seconds)
            case StoredResponse():
                return replay(confirm.operation, outcome)
            case Overdue():
                return await refuse_late_confirm(context, confirm)
            case Missing():
                async with context.database.read_one() as reading:
                    raise await why_missing(reading, confirm.reservation_id, context.limits.shard)
            case TryAgain():
                outcome = await _try_once(context, confirm)
            case Problem():
                raise outcome
            case _:
                assert_never(outcome)
    raise Overloaded(f"concurrent requests for this reservation rolled this one back {TRIES_MAX} times; retry")


async def _try_once(context: Context, confirm: Confirm) -> ConfirmOutcome:
    """Under the reservation's lock alone, in one call."""
    try:
        async with context.database.autocommit() as tx:
            reach(CrashPoint.CONFIRM_RESERVATION_BEFORE_COMMIT)
            outcome = await confirm_once(tx, confirm)
        reach(CrashPoint.CONFIRM_RESERVATION_AFTER_COMMIT)
        return outcome
    except TransactionConflict:
        return TryAgain()


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
        result = WriteResult.OK if subject.state is ReservationState.HOLD else WriteResult.NOOP
        if result is WriteResult.OK:
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
