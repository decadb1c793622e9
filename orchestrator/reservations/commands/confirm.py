"""The holder's confirm: a hold becomes a confirmed window, without a deadline (docs/reference/reservations.md).

A list in, one answer each: the API combines confirms that arrive together, and one is the ordinary case.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from sqlalchemy.exc import DBAPIError

from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.transactions import TransactionConflict
from orchestrator.operations.execution import TRIES_MAX, Context, Later, Result, remembered, store_refusals_of
from orchestrator.operations.store.operations import Answer, answer_of_call
from orchestrator.operations.store.refusals import Refused
from orchestrator.problems import InvalidState, OperationInProgress, Overloaded, Problem
from orchestrator.reservations.commands.expire_overdue import refuse_late_confirm
from orchestrator.reservations.refusals import HolderMismatch
from orchestrator.reservations.store.confirming import Confirm, confirm_once, confirm_together
from orchestrator.reservations.store.rows import why_missing


async def confirm_reservation(context: Context, confirms: Sequence[Confirm]) -> list[Result | Later]:
    """What became of each: 200 with the reservation (`noop` if it is confirmed already), in order.

    Refusals, remembered with the key: `ReservationNotFound`, `ReservationRetired`, `HolderMismatch`, `InvalidState`. A hold
    past its deadline, by the clock after its locks, expires in the transaction that stores that its confirm was refused.
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
    for index, answer in zip(refused, await store_refusals_of(context, list(refused.values())), strict=True):
        results[index] = answer
    return results


async def _try_together(context: Context, confirms: Sequence[Confirm]) -> list[dict[str, Any]]:
    try:
        async with context.database.autocommit() as tx:
            reach(CrashPoint.CONFIRM_RESERVATION_BEFORE_COMMIT)
            outcomes = await confirm_together(tx, confirms)
        reach(CrashPoint.CONFIRM_RESERVATION_AFTER_COMMIT)
        return outcomes
    except (TransactionConflict, OperationInProgress, DBAPIError):
        return [{"outcome": "again"}] * len(confirms)  # for the sake of one of them: each goes alone


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
                async with context.database.read_one() as reading:
                    raise await why_missing(reading, confirm.reservation_id, context.limits.shard)
            case "holder":
                raise HolderMismatch("the reservation is held by another holder")
            case "state":
                raise InvalidState(
                    f"the reservation is {outcome['state']}; there is nothing to confirm", state=outcome["state"]
                )
            case "overdue":
                return await refuse_late_confirm(context, confirm)
            case "again":
                outcome = await _try_alone(context, confirm)
            case word:
                raise ValueError(f"{word} is not an outcome of a confirm")
    raise Overloaded("rivals for the same reservation kept this from running; try again")


async def _try_alone(context: Context, confirm: Confirm) -> dict[str, Any]:
    """Under the reservation's lock alone, in one call."""
    try:
        async with context.database.autocommit() as tx:
            reach(CrashPoint.CONFIRM_RESERVATION_BEFORE_COMMIT)
            outcome = await confirm_once(tx, confirm)
        reach(CrashPoint.CONFIRM_RESERVATION_AFTER_COMMIT)
        return outcome
    except TransactionConflict:
        return {"outcome": "again"}
