"""The holder's confirm, or an operator's: a hold becomes a confirmed window, without a deadline (docs/reservations.md)."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from orchestrator.crash_points import CrashPoint, reach
from orchestrator.domain.errors import InvalidState, OperationInProgress, Overloaded, Problem
from orchestrator.domain.reservation_refusals import HolderMismatch
from orchestrator.domain.reservations import ReservationState, Result
from orchestrator.domain.states import Actor, ActorKind
from orchestrator.execution import TRIES_MAX, Context, Done, remembered, run_once
from orchestrator.store import audit
from orchestrator.store.confirming import confirm_once
from orchestrator.store.database import Transaction, TransactionConflict
from orchestrator.store.operations import Answer, Operation, answer_of_call
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
        try:
            return await _confirm(context, operation, actor, tenant_id, reservation_id, holder_id)
        except Problem as refusal:
            return await remembered(context, operation, refusal, tenant_id)

    return await by_holder() if context.gate is None else await context.gate.answer(operation, by_holder)


async def _confirm(
    context: Context, operation: Operation, actor: Actor, tenant_id: UUID, reservation_id: UUID, holder_id: str
) -> Answer:
    """Under the reservation's lock alone, in one call."""
    for _ in range(TRIES_MAX):
        try:
            async with context.database.statement() as tx:
                reach(CrashPoint.CONFIRM_RESERVATION_BEFORE_COMMIT)
                outcome = await confirm_once(tx, operation, tenant_id, reservation_id, holder_id)
            reach(CrashPoint.CONFIRM_RESERVATION_AFTER_COMMIT)
        except TransactionConflict:
            continue
        match outcome["outcome"]:
            case "ok" | "noop" | "existing":
                return answer_of_call(operation, outcome)
            case "in_progress":
                raise OperationInProgress("the first attempt with this key has just ended without effect; try again")
            case "missing":
                async with context.database.glance() as reading:
                    raise await why_missing(reading, reservation_id, context.limits.shard)
            case "holder":
                raise HolderMismatch("the reservation is held by another holder")
            case "state":
                raise InvalidState(
                    f"the reservation is {outcome['state']}; there is nothing to confirm", state=outcome["state"]
                )
            case "overdue":
                return await _expire_late(context, operation, actor, tenant_id, reservation_id)
            case word:
                raise ValueError(f"{word} is not an outcome of a confirm")
    raise Overloaded("rivals for the same reservation kept this from running; try again")


async def _expire_late(
    context: Context, operation: Operation, actor: Actor, tenant_id: UUID, reservation_id: UUID
) -> Answer:
    """Its claims end as well, so their nodes are locked before it is; all that is done under the confirm's key."""

    async def effect(tx: Transaction) -> Done:
        return await _expire(context, tx, operation, actor, tenant_id, reservation_id)

    return await run_once(replace(context, gate=None), operation, effect, tenant_id)


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
    result = Result.NOOP if subject.state is ReservationState.CONFIRMED else Result.OK
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
