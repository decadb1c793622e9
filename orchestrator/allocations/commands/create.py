"""Create allocations: a list in, one answer each, one transaction (DESIGN §4 step 1, §5).

The API combines creates that arrive together; one is the ordinary case. Items do not see each other: one that is refused
leaves nothing but its own refusal, stored alone in a second transaction (DESIGN §6), and when a constraint refuses one, the
list goes back to its savepoint and each is placed under its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import structlog
from sqlalchemy.exc import DBAPIError

from orchestrator.allocations.commands.create_in_window import place_in_windows
from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.sqlstates import sqlstate_of
from orchestrator.database.transactions import TransactionConflict
from orchestrator.operations.execution import TRIES_MAX, Context, Later, Result, store_refusals_of
from orchestrator.operations.store.operations import Answer, stored_answer
from orchestrator.operations.store.refusals import Refused
from orchestrator.placement.admission import Wanted, admit
from orchestrator.placement.refusals import contended, no_room, no_room_in_window, refusal_of
from orchestrator.placement.store.placing import Create, Placement, QuotaMoved, Room, look_for_room, place_all
from orchestrator.problems import OperationInProgress, Overloaded, Problem, Unforeseen
from orchestrator.reservations.refusals import OperationTableFull
from orchestrator.tenants.store.tenants import find_locked_quotas

log = structlog.get_logger("orchestrator.api")


async def create_allocations(
    context: Context, catalogue: CatalogueCache, creates: Sequence[Create]
) -> list[Result | Later]:
    """What became of each create, in order: an answer to send (201, or a stored one), or a problem that leaves no record.

    One whose quota, or perhaps key, somebody has locked is for the caller to try alone, later; one that comes alone is not.
    Keys within the list must be distinct per tenant; the caller sees to it. Raises `DatabaseUnavailable` or
    `OutcomeUnknown` for the list as a whole.
    """
    results: dict[int, Result | Later] = {}
    open_items = dict(enumerate(creates))
    waiting: set[int] = set()
    for _ in range(TRIES_MAX):
        try:
            open_items = await _try_all(context, catalogue, open_items, waiting, results)
        except Problem as trouble:
            if not results:
                raise
            # Some have their place, which stands whatever happened since.
            results |= {index: trouble for index in open_items if index not in results}
            open_items = {}
        if not open_items:
            break
    results |= await _refuse(context, open_items, {index: contended() for index in open_items})
    return [results[index] for index in range(len(creates))]


async def _try_all(
    context: Context,
    catalogue: CatalogueCache,
    open_items: dict[int, Create],
    waiting: set[int],
    results: dict[int, Result | Later],
) -> dict[int, Create]:
    """Which are to be tried again, `waiting` for busy nodes where that may help; the others' results are written down.

    Each as soon as it is known: what raises later is about those that have none yet.
    """
    placements, refusals = await _admit_all(context, catalogue, open_items, waiting)
    outcomes = dict(zip(placements, await _place(context, list(placements.values())), strict=True))
    _settle(open_items, outcomes, results)
    rooms = await _look_again(context, placements, outcomes)
    roomless = {index: placements[index] for index, room in rooms.items() if not room.fits}
    placed = await place_in_windows(context, roomless)
    _settle(open_items, placed, results)
    again: dict[int, Create] = {}
    for index, outcome in (outcomes | placed).items():
        word, create = outcome["outcome"], open_items[index]
        if index in results:
            continue
        if word == "alone":
            results[index] = partial(_alone, context, catalogue, create)
        elif word in ("stale", "lost"):
            catalogue.forget()
            again[index] = create
        elif word == "contended":
            refusals[index] = contended()
        elif word != "no_room":
            refusals[index] = refusal_of(outcome)
        elif rooms[index].fits:
            waiting.add(index)
            again[index] = create
        elif create.ends_at is not None:
            refusals[index] = no_room_in_window(placements[index].admitted)
        else:
            refusals[index] = no_room(placements[index].admitted, rooms[index].free_gpus)
    results |= await _refuse(context, open_items, refusals)
    return again


async def _alone(context: Context, catalogue: CatalogueCache, create: Create) -> Result:
    try:
        (result,) = await create_allocations(context, catalogue, [create])
    except Problem as problem:
        return problem
    assert isinstance(result, Answer | Problem), "one that comes alone is tried at once"
    return result


def _settle(
    creates: dict[int, Create], outcomes: dict[int, dict[str, Any]], results: dict[int, Result | Later]
) -> None:
    """Write down what became of those that have their place, or had it before, or met trouble of their own."""
    for index, outcome in outcomes.items():
        if outcome["outcome"] in ("created", "existing"):
            results[index] = _answer(creates[index], outcome)
        elif outcome["outcome"] == "trouble":
            results[index] = outcome["trouble"]


async def _admit_all(
    context: Context, catalogue: CatalogueCache, creates: dict[int, Create], waiting: set[int]
) -> tuple[dict[int, Placement], dict[int, Problem]]:
    """Split into what can be tried and what the catalogue refuses; nobody is refused by a stale copy of it."""
    placements: dict[int, Placement] = {}
    refusals: dict[int, Problem] = {}
    offered = await catalogue.current()
    for index, create in creates.items():
        wanted = Wanted(create.sku, create.gpus, create.region, create.image)
        try:
            admitted = admit(offered, wanted)
        except Problem:
            offered = await catalogue.before_refusing()
            try:
                admitted = admit(offered, wanted)
            except Problem as refusal:
                refusals[index] = refusal
                continue
        limits = context.limits
        placement = Placement(create, admitted, limits.requested_seconds_max, limits.window_seconds_max)
        placements[index] = replace(placement, wait=True) if index in waiting else placement
    return placements, refusals


async def _place(context: Context, placements: list[Placement]) -> list[dict[str, Any]]:
    """Place together; if the transaction fails for one item's sake, place each alone, so that only that one suffers.

    `alone`: somebody has locked what it needs, so the rest are not to wait with it.
    """
    if not placements:
        return []
    try:
        return await _place_together(context, placements)
    except (OperationInProgress, OperationTableFull, DBAPIError) as error:
        if len(placements) > 1 and isinstance(error, OperationInProgress):
            return await _pass_over(context, placements)
        if len(placements) > 1:
            return list(await asyncio.gather(*(_place_alone(context, placement) for placement in placements)))
        if isinstance(error, OperationInProgress):
            return [{"outcome": "lost" if placements[0].wait else "in_progress"}]
        if isinstance(error, OperationTableFull):
            return [{"outcome": "operations_full"}]
        raise


async def _pass_over(context: Context, placements: list[Placement]) -> list[dict[str, Any]]:
    """Place the rest without those whose quota somebody has locked; where it is not that, each is to go alone."""
    async with context.database.autocommit() as tx:
        locked = await find_locked_quotas(tx, {placement.create.tenant_id for placement in placements})
    outcomes: list[dict[str, Any]] = [{"outcome": "alone"}] * len(placements)
    rest = [n for n, placement in enumerate(placements) if placement.create.tenant_id not in locked]
    if locked and len(rest) > 1:
        for n, outcome in zip(rest, await _place(context, [placements[n] for n in rest]), strict=True):
            outcomes[n] = outcome
    return outcomes


async def _place_alone(context: Context, placement: Placement) -> dict[str, Any]:
    """One of a list that failed; its trouble is its own, as the others may have their places by now."""
    try:
        (outcome,) = await _place(context, [placement])
        return outcome
    except Problem as trouble:
        return {"outcome": "trouble", "trouble": trouble}
    except DBAPIError as error:
        log.error("a create failed", operation_key=placement.create.operation.key, exc_info=error)
        unforeseen = Unforeseen()
        # What Postgres itself refused was the whole transaction, so it certainly did not commit.
        refused = sqlstate_of(error) is not None
        return {"outcome": "trouble", "trouble": Problem(unforeseen.detail) if refused else unforeseen}


async def _place_together(context: Context, placements: list[Placement]) -> list[dict[str, Any]]:
    quota_first = False
    for _ in range(TRIES_MAX):
        try:
            async with context.database.autocommit() as tx:
                reach(CrashPoint.CREATE_ALLOCATIONS_BEFORE_COMMIT)
                outcomes = await place_all(tx, placements, quota_first=quota_first)
            reach(CrashPoint.CREATE_ALLOCATIONS_AFTER_COMMIT)
            return outcomes
        except QuotaMoved:
            quota_first = True
        except TransactionConflict:
            continue
    raise Overloaded("rivals for the same nodes kept these requests from running; try again")


async def _look_again(
    context: Context, placements: dict[int, Placement], outcomes: dict[int, dict[str, Any]]
) -> dict[int, Room]:
    """A second look for those that found no unlocked node: one for all that want the same."""
    wanting = {index: placements[index].admitted for index, found in outcomes.items() if found["outcome"] == "no_room"}
    if not wanting:
        return {}
    rooms: dict[tuple[int, int], Room] = {}
    async with context.database.reading() as reading:
        for admitted in wanting.values():
            want = (admitted.pool.pool_id, admitted.gpus)
            if want not in rooms:
                rooms[want] = await look_for_room(reading, admitted)
    return {index: rooms[admitted.pool.pool_id, admitted.gpus] for index, admitted in wanting.items()}


async def _refuse(
    context: Context, creates: dict[int, Create], refusals: dict[int, Problem]
) -> dict[int, Result | Later]:
    """Remember the refusals together; those that are no business outcome leave no record."""
    storable = [index for index, refusal in refusals.items() if refusal.business]
    refused = [Refused(creates[index].operation, refusals[index], creates[index].tenant_id) for index in storable]
    results: dict[int, Result | Later] = {index: refusal for index, refusal in refusals.items() if not refusal.business}
    results.update(zip(storable, await store_refusals_of(context, refused), strict=True))
    return results


def _answer(create: Create, outcome: dict[str, Any]) -> Result:
    if outcome["outcome"] == "created":
        return Answer(outcome["status"], outcome["body"], kept_seconds=create.operation.retention_seconds)
    fingerprint = None if outcome["fingerprint"] is None else bytes.fromhex(outcome["fingerprint"])
    # A creation is known as long as its row stands; of a stored refusal nobody has told how long it is kept.
    kept_seconds = create.operation.retention_seconds if outcome["status"] < 400 else 0.0
    try:
        return stored_answer(create.operation, fingerprint, outcome["status"], outcome["body"], kept_seconds)
    except Problem as conflict_or_fence:
        return conflict_or_fence
