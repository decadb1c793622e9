"""The holder's confirm, or an operator's: a hold becomes a confirmed window, without a deadline (docs/reservations.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy.exc import DBAPIError

from orchestrator.crash_points import CrashPoint, reach
from orchestrator.domain import reservations
from orchestrator.domain.errors import InvalidState, OperationInProgress, Overloaded, Problem
from orchestrator.domain.reservation_refusals import HolderMismatch
from orchestrator.domain.reservations import ReservationState
from orchestrator.domain.states import Actor, ActorKind
from orchestrator.execution import TRIES_MAX, Context, Done, Later, Result, remember_refusals, remembered, run_once
from orchestrator.store import audit
from orchestrator.store.confirming import Confirm, confirm_once, confirm_together
from orchestrator.store.database import Transaction, TransactionConflict
from orchestrator.store.operations import Answer, Operation, answer_of_call
from orchestrator.store.refusals import Refused
from orchestrator.store.reservation_rows import read_reservation, why_missing
from orchestrator.store.reservations import ReservationChange, advance_reservation_if, lock_reservation


async def confirm_reservation(
    context: Context, operation: Operation, actor: Actor, tenant_id: UUID, reservation_id: UUID, holder_id: str
) -> Answer:
    """Answer 200 with the reservation; `noop` if it is confirmed already.

    A hold past its deadline, by the clock after its locks, expires in this transaction, which also stores that the confirm
    was refused. An operator's confirm is audited, and its event names him. Refusals, remembered with the key:
    `ReservationNotFound`, `ReservationRetired`, `HolderMismatch`, `InvalidState`.
    """
    if actor.kind is ActorKind.ADMIN:

        async def by_operator(tx: Transaction) -> Done:
            return await _confirm_for_tenant(context, tx, operation, actor, tenant_id, reservation_id, holder_id)

        return await run_once(context, operation, by_operator, None)

    async def by_holder() -> Answer:
        result = await _alone(context, Confirm(operation, tenant_id, reservation_id, holder_id))
        if isinstance(result, Problem):
            raise result
        return result

    return await by_holder() if context.gate is None else await context.gate.answer(operation, by_holder)


async def confirm_reservations(context: Context, confirms: Sequence[Confirm]) -> list[Result | Later]:
    """What became of each tenant's confirm, in order.

    One transaction tries them together; they do not see each other. One whose reservation somebody has locked, or whose
    deadline has passed, is for the caller to try alone, later. Keys within the list must be distinct per tenant; the caller
    sees to it. Raises `DatabaseUnavailable` or `OutcomeUnknown` for the list as a whole.
    """
    results: list[Result | Later] = []
    refused: dict[int, Refused] = {}
    for confirm, outcome in zip(confirms, await _try_together(context, confirms), strict=True):
        if outcome["outcome"] in ("again", "overdue"):
            results.append(partial(_alone, context, confirm))
            continue
        try:
            results.append(await _settle(context, confirm, outcome))
        except Problem as refusal:
            if refusal.business:
                refused[len(results)] = Refused(confirm.operation, refusal, confirm.tenant_id)
            results.append(refusal)
    for index, answer in zip(refused, await remember_refusals(context, list(refused.values())), strict=True):
        results[index] = answer
    return results


async def _try_together(context: Context, confirms: Sequence[Confirm]) -> list[dict[str, Any]]:
    if len(confirms) > 1:
        try:
            async with context.database.statement() as tx:
                reach(CrashPoint.CONFIRM_RESERVATION_BEFORE_COMMIT)
                outcomes = await confirm_together(tx, confirms)
            reach(CrashPoint.CONFIRM_RESERVATION_AFTER_COMMIT)
            return outcomes
        except (TransactionConflict, OperationInProgress, DBAPIError):
            pass  # for the sake of one of them: each goes alone
    return [{"outcome": "again"}] * len(confirms)


async def _alone(context: Context, confirm: Confirm) -> Result:
    try:
        return await _settle(context, confirm, {"outcome": "again"})
    except Problem as refusal:
        try:
            return await remembered(context, confirm.operation, refusal, confirm.tenant_id)
        except Problem as problem:
            return problem


async def _settle(context: Context, confirm: Confirm, outcome: dict[str, Any]) -> Answer:
    """The answer to one, tried alone while it is told `again`. Raises its refusal."""
    for _ in range(1 + TRIES_MAX):
        match outcome["outcome"]:
            case "ok" | "noop" | "existing":
                return answer_of_call(confirm.operation, outcome)
            case "in_progress":
                raise OperationInProgress("the first attempt with this key has just ended without effect; try again")
            case "missing":
                async with context.database.glance() as reading:
                    raise await why_missing(reading, confirm.reservation_id, context.limits.shard)
            case "holder":
                raise HolderMismatch("the reservation is held by another holder")
            case "state":
                raise InvalidState(
                    f"the reservation is {outcome['state']}; there is nothing to confirm", state=outcome["state"]
                )
            case "overdue":
                return await _expire_late(context, confirm)
            case "again":
                outcome = await _try_alone(context, confirm)
            case word:
                raise ValueError(f"{word} is not an outcome of a confirm")
    raise Overloaded("rivals for the same reservation kept this from running; try again")


async def _try_alone(context: Context, confirm: Confirm) -> dict[str, Any]:
    """Under the reservation's lock alone, in one call."""
    try:
        async with context.database.statement() as tx:
            reach(CrashPoint.CONFIRM_RESERVATION_BEFORE_COMMIT)
            outcome = await confirm_once(tx, confirm)
        reach(CrashPoint.CONFIRM_RESERVATION_AFTER_COMMIT)
        return outcome
    except TransactionConflict:
        return {"outcome": "again"}


async def _expire_late(context: Context, confirm: Confirm) -> Answer:
    """Its claims end as well, so their nodes are locked before it is; all that is done under the confirm's key."""
    actor = Actor(ActorKind.TENANT, str(confirm.tenant_id))

    async def effect(tx: Transaction) -> Done:
        return await _expire(context, tx, confirm.operation, actor, confirm.tenant_id, confirm.reservation_id)

    return await run_once(replace(context, gate=None), confirm.operation, effect, confirm.tenant_id)


async def _confirm_for_tenant(
    context: Context,
    tx: Transaction,
    operation: Operation,
    actor: Actor,
    tenant_id: UUID,
    reservation_id: UUID,
    holder_id: str,
) -> Done:
    """What `confirm_held` does for its holder, by an operator: judged under every lock, as it may expire here."""
    subject = await lock_reservation(tx, reservation_id, tenant_id)
    if subject is None:
        raise await why_missing(tx, reservation_id, context.limits.shard)
    if subject.holder_id != holder_id:
        raise HolderMismatch("the reservation is held by another holder")
    if subject.overdue:
        return await _expire(context, tx, operation, actor, tenant_id, reservation_id)
    if not subject.live:
        raise InvalidState(f"the reservation is {subject.state}; there is nothing to confirm", state=subject.state)
    result = reservations.Result.OK if subject.state is ReservationState.HOLD else reservations.Result.NOOP
    if result is reservations.Result.OK:
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


async def _expire(
    context: Context, tx: Transaction, operation: Operation, actor: Actor, tenant_id: UUID, reservation_id: UUID
) -> Done:
    subject = await lock_reservation(tx, reservation_id, tenant_id)
    if subject is None:
        raise await why_missing(tx, reservation_id, context.limits.shard)
    state = subject.state
    if subject.overdue:
        state = ReservationState.EXPIRED
        change = ReservationChange(
            state,
            context.limits.reservation_retention_seconds,
            operation_key=operation.key,
            request_id=operation.request_id,
        )
        await advance_reservation_if(tx, subject, change, actor)
    # Who came first has ended it: the deadline had passed all the same, so nobody can have confirmed it since.
    return Done.refusing(InvalidState("the hold's deadline has passed; it is over", state=state), reservation_id)
