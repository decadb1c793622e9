"""Confirm by the holder or an operator: a hold becomes a confirmed window, without a deadline (docs/reference/reservations.md).

The holder's confirm is a list in, one answer each: the API batches confirms that arrive together; a list of one is the
ordinary case. An operator's confirm is audited, and its event contains the operator's id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from functools import partial
from typing import assert_never
from uuid import UUID

from sqlalchemy.exc import DBAPIError

from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.calls import CallGroup
from orchestrator.database.reserve import NOT_OWNED, Claimant
from orchestrator.database.transactions import TransactionConflict
from orchestrator.operations.execution import (
    TRIES_MAX,
    Context,
    Deferred,
    Result,
    remembered,
    store_refusals_of,
)
from orchestrator.operations.outcomes import StoredResponse, TryAgain
from orchestrator.operations.queries import with_version
from orchestrator.operations.store.operations import Answer, Operation, replay
from orchestrator.operations.store.refusals import Refused
from orchestrator.problems import OperationInProgress, Overloaded, Problem
from orchestrator.reservations.outcomes import (
    Confirmed,
    ConfirmOutcome,
    EndedInstead,
    LateConfirmOutcome,
    Missing,
    Overdue,
)
from orchestrator.reservations.queries import why_missing
from orchestrator.reservations.store.confirming import Confirm, confirm_all, refuse_late_confirm
from orchestrator.tenants.principals import Actor


async def confirm_reservation(context: Context, confirms: Sequence[Confirm]) -> list[Result | Deferred]:
    """Return one outcome per confirm, in input order: 200 with the reservation (`noop` if it is confirmed already).

    Refusals, stored with the key: `ReservationNotFound`, `ReservationRetired`, `HolderMismatch`, `InvalidState`. A hold past
    its deadline, by the clock after its locks, expires in the transaction that stores the refusal of its confirm.
    One transaction tries the list; items are independent. A confirm whose reservation is locked or overdue is `Deferred`.
    While the reserve is needed, a confirm whose caller does not own the reservation is `Overloaded` and takes none of it.
    Keys within the list must be distinct per tenant. Raises `DatabaseUnavailable` or `OutcomeUnknown` for the list as a whole.
    """
    if not context.database.needs_reserve(CallGroup.RESERVATIONS):
        return await _confirm_list(context, confirms)
    found = await asyncio.gather(*(confirm.claimant() for confirm in confirms))
    owned = [confirm for confirm, claimant in zip(confirms, found, strict=True) if claimant is not None]
    claimants = {claimant for claimant in found if claimant is not None}
    batch = _with_claimant(context, claimants.pop() if len(claimants) == 1 else Claimant())
    results = iter(await _confirm_list(batch, owned) if owned else ())
    return [Overloaded(NOT_OWNED) if claimant is None else next(results) for claimant in found]


async def _confirm_list(context: Context, confirms: Sequence[Confirm]) -> list[Result | Deferred]:
    results: list[Result | Deferred] = []
    refused: dict[int, Refused] = {}
    for confirm, outcome in zip(confirms, await _try_batch(context, confirms), strict=True):
        alone = _claiming(context, confirm)
        if isinstance(outcome, TryAgain | Overdue):
            results.append(Deferred(partial(_confirm_alone, alone, confirm, outcome)))
            continue
        try:
            results.append(await _settle(alone, confirm, outcome))
        except Problem as refusal:
            if refusal.business:
                refused[len(results)] = Refused(confirm.operation, refusal, confirm.tenant_id)
            results.append(refusal)
    storing = _claiming(context, *(confirms[index] for index in refused))
    for index, answer in zip(refused, await store_refusals_of(storing, list(refused.values())), strict=True):
        results[index] = answer
    return results


def _with_claimant(context: Context, claimant: Claimant) -> Context:
    """The same, with this claim to the reserve."""

    async def known() -> Claimant:
        return claimant

    return replace(context, database=context.database.for_claimant(known))


def _claiming(context: Context, *confirms: Confirm) -> Context:
    """The same, with a claim to the reserve if the callers of all these own their reservations."""

    async def claimant() -> Claimant | None:
        found = await asyncio.gather(*(confirm.claimant() for confirm in confirms))
        return None if None in found else found[0] if len(set(found)) == 1 else Claimant()

    return replace(context, database=context.database.for_claimant(claimant))


async def confirm_for_tenant(
    context: Context, operation: Operation, operator: Actor, tenant_id: UUID, reservation_id: UUID, holder_id: str
) -> Answer:
    """Return 200 with the reservation; refusals are those of the holder's confirm, stored with the operator's key."""
    confirm = Confirm(operation, tenant_id, reservation_id, holder_id, operator)

    async def run() -> Answer:
        answer = await _confirm_alone(context, confirm, TryAgain())
        if isinstance(answer, Problem):
            raise answer
        return answer

    if context.gate is None:
        return await run()
    return await context.gate.answer(operation, lambda: with_version(context.database, operation, run()))


async def _try_batch(context: Context, confirms: Sequence[Confirm]) -> list[ConfirmOutcome]:
    try:
        return await _confirm(context, confirms)
    except (TransactionConflict, OperationInProgress, DBAPIError):
        return [TryAgain()] * len(confirms)  # one item made the batch fail: each is tried alone


async def _confirm(context: Context, confirms: Sequence[Confirm]) -> list[ConfirmOutcome]:
    async with context.database.function_call(CallGroup.RESERVATIONS) as call:
        reach(CrashPoint.CONFIRM_RESERVATION_BEFORE_COMMIT)
        outcomes = await confirm_all(call, confirms)
    reach(CrashPoint.CONFIRM_RESERVATION_AFTER_COMMIT)
    return outcomes


async def _confirm_alone(context: Context, confirm: Confirm, outcome: TryAgain | Overdue) -> Result:
    try:
        return await _settle(context, confirm, outcome)
    except Problem as refusal:
        try:
            return await remembered(context, confirm.operation, refusal, confirm.caller_tenant_id)
        except Problem as problem:
            return problem


async def _settle(context: Context, confirm: Confirm, outcome: ConfirmOutcome | LateConfirmOutcome) -> Answer:
    """The answer to one confirm; on `TryAgain` it is tried alone, a bounded number of times. Raises its refusal."""
    tries = 0
    while True:
        match outcome:
            case Confirmed(body):
                return Answer(200, body, kept_seconds=confirm.operation.retention_seconds)
            case EndedInstead(status, body):
                return Answer(status, body, kept_seconds=confirm.operation.retention_seconds)
            case StoredResponse():
                return replay(confirm.operation, outcome)
            case Overdue() | TryAgain() if tries > TRIES_MAX:
                raise Overloaded(f"concurrent requests for this reservation rolled this one back {tries} times; retry")
            case Overdue():
                outcome = await _try(_refuse_late(context, confirm))
            case Missing():
                raise await why_missing(context, confirm.reservation_id)
            case TryAgain():
                outcome = await _try(_confirm_one(context, confirm))
            case Problem():
                raise outcome
            case _:
                assert_never(outcome)
        tries += 1


async def _try(attempt: Awaitable[ConfirmOutcome | LateConfirmOutcome]) -> ConfirmOutcome | LateConfirmOutcome:
    try:
        return await attempt
    except TransactionConflict:
        return TryAgain()


async def _confirm_one(context: Context, confirm: Confirm) -> ConfirmOutcome:
    """Under the reservation's lock alone, in one call."""
    (outcome,) = await _confirm(context, [confirm])
    return outcome


async def _refuse_late(context: Context, confirm: Confirm) -> LateConfirmOutcome:
    """Under the locks of the hold's claims, in one call."""
    async with context.database.function_call(CallGroup.RESERVATIONS) as call:
        reach(CrashPoint.CONFIRM_RESERVATION_BEFORE_COMMIT)
        outcome = await refuse_late_confirm(call, confirm, context.limits.reservation_retention_seconds)
    reach(CrashPoint.CONFIRM_RESERVATION_AFTER_COMMIT)
    return outcome
