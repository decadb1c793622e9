"""Create allocations: a list in, one answer each, one transaction (DESIGN §4 step 1, §5).

The API combines creates that arrive together; one is the ordinary case. Items do not see each other: each has its own
savepoint, and one that is refused leaves nothing but its own refusal, stored alone in a second transaction (DESIGN §6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy.exc import DBAPIError

from orchestrator.catalogue_cache import CatalogueCache
from orchestrator.domain.errors import (
    Forbidden,
    OperationInProgress,
    Overloaded,
    Problem,
    QuotaExceeded,
    SkuUnavailable,
    SshKeyNotFound,
    UnavailableReason,
)
from orchestrator.execution import TRIES_MAX, Context, store_refusal
from orchestrator.placement.admission import Admitted, Wanted, admit
from orchestrator.store.database import TransactionConflict
from orchestrator.store.operations import Answer, stored_answer
from orchestrator.store.placing import Create, Placement, QuotaMoved, Room, look_for_room, place_all

Result = Answer | Problem


async def create_allocations(context: Context, catalogue: CatalogueCache, creates: Sequence[Create]) -> list[Result]:
    """What became of each create, in order: an answer to send (201, or a stored one), or a problem that leaves no record.

    Keys within the list must be distinct per tenant; the caller sees to it. Raises `DatabaseUnavailable` or
    `OutcomeUnknown` for the list as a whole.
    """
    results: list[Result | None] = [None] * len(creates)
    open_items = dict(enumerate(creates))
    waiting: set[int] = set()
    for _ in range(TRIES_MAX):
        placements, refusals = await _admit_all(context, catalogue, open_items, waiting)
        outcomes = await _place(context, list(placements.values()))
        again: dict[int, Create] = {}
        for index, outcome in zip(placements, outcomes, strict=True):
            word, create = outcome["outcome"], open_items[index]
            if word in ("created", "existing"):
                results[index] = _answer(create, outcome)
            elif word == "no_room":
                room = await _look_again(context, placements[index].admitted)
                if room.fits:
                    waiting.add(index)
                    again[index] = create
                else:
                    refusals[index] = _no_room(placements[index].admitted, room)
            elif word in ("stale", "lost"):
                catalogue.forget()
                again[index] = create
            else:
                refusals[index] = _refusal(word, outcome)
        for index, refusal in refusals.items():
            results[index] = await _refuse(context, open_items[index], refusal)
        open_items = again
        if not open_items:
            break
    for index, create in open_items.items():
        busy = SkuUnavailable(
            "every node that fits is being taken by others right now; try again", reason=UnavailableReason.BUSY_NOW
        )
        results[index] = await _refuse(context, create, busy)
    return [result if result is not None else Overloaded("the request was not run") for result in results]


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
        placement = Placement(create, admitted, context.limits.requested_seconds_max)
        placements[index] = replace(placement, wait=True) if index in waiting else placement
    return placements, refusals


async def _place(context: Context, placements: list[Placement]) -> list[dict[str, Any]]:
    """Place together; if the transaction fails for one item's sake, place each alone, so that only that one suffers."""
    if not placements:
        return []
    try:
        return await _place_together(context, placements)
    except (OperationInProgress, DBAPIError) as error:
        if len(placements) > 1:
            alone = await asyncio.gather(*(_place(context, [placement]) for placement in placements))
            return [outcome for outcomes in alone for outcome in outcomes]
        if isinstance(error, OperationInProgress):
            return [{"outcome": "lost" if placements[0].wait else "in_progress"}]
        raise


async def _place_together(context: Context, placements: list[Placement]) -> list[dict[str, Any]]:
    quota_first = False
    for _ in range(TRIES_MAX):
        try:
            async with context.database.transaction() as tx:
                return await place_all(tx, placements, quota_first=quota_first)
        except QuotaMoved:
            quota_first = True
        except TransactionConflict:
            continue
    raise Overloaded("rivals for the same nodes kept these requests from running; try again")


async def _look_again(context: Context, admitted: Admitted) -> Room:
    async with context.database.reading() as reading:
        return await look_for_room(reading, admitted)


async def _refuse(context: Context, create: Create, refusal: Problem) -> Result:
    if not refusal.business:
        return refusal
    try:
        return await store_refusal(context, create.operation, refusal, create.tenant_id)
    except Problem as problem:
        return problem
    except TransactionConflict:
        return OperationInProgress("another request with this key is running; try again")


def _answer(create: Create, outcome: dict[str, Any]) -> Result:
    if outcome["outcome"] == "created":
        return Answer(outcome["status"], outcome["body"])
    try:
        return stored_answer(
            create.operation, bytes.fromhex(outcome["fingerprint"]), outcome["status"], outcome["body"]
        )
    except Problem as conflict:
        return conflict


def _no_room(admitted: Admitted, room: Room) -> SkuUnavailable:
    name, region, gpus = admitted.sku.name, admitted.pool.region, admitted.gpus
    if room.free_gpus >= gpus:
        return SkuUnavailable(
            f"{region} has {name} GPUs free, but no single node has {gpus} of them; ask for fewer, or wait",
            reason=UnavailableReason.ONLY_FRAGMENTS_LEFT,
        )
    return SkuUnavailable(
        f"all {name} GPUs in {region} that could serve this are in use", reason=UnavailableReason.BUSY_NOW
    )


def _refusal(word: str, outcome: dict[str, Any]) -> Problem:
    if word == "quota":
        used, limit = outcome["gpus_used"], outcome["gpus_limit"]
        return QuotaExceeded(f"{used} of {limit} GPUs are in use", gpus_used=used, gpus_limit=limit)
    if word == "in_progress":
        return OperationInProgress("another request with this key is running; try again")
    if word == "ssh_key":
        return SshKeyNotFound("one of ssh_key_ids is not a key of this tenant")
    return Forbidden("this tenant is suspended")
