"""Holds units: named resources, or GPUs of a SKU, all or nothing (docs/reference/reservations.md, "Holding").

One transaction writes the reservation, its claims, its operation and its event. A request that the committed claims already
refuse takes no lock. Its refusal is stored in a second transaction (DESIGN §6).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import assert_never
from uuid import UUID

from sqlalchemy.exc import DBAPIError

from berth.process.json_objects import JsonObject
from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.calls import CallGroup
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
from orchestrator.operations.refusals import OperationUnstorable
from orchestrator.operations.store.operations import Answer, replay
from orchestrator.operations.store.refusals import Refused
from orchestrator.placement.outcomes import NoRoom
from orchestrator.placement.refusals import contended, no_room, no_room_in_window
from orchestrator.placement.store.placing import find_free_capacity
from orchestrator.placement.store.windows import find_room
from orchestrator.placement.windows import Pick
from orchestrator.problems import Invalid, OperationInProgress, Problem, QuotaExceeded, SlotOverflow
from orchestrator.reservations.hold_requests import GpuRequest, HoldRequest, bounds_of, require_bounds, resolve
from orchestrator.reservations.outcomes import Held, HoldOutcome
from orchestrator.reservations.refusals import (
    ExpirationIndexFull,
    ReservationTableFull,
    ResourceBusy,
    ResourceNotFound,
    ResourceOutOfService,
)
from orchestrator.reservations.rival_expiry import expire_overdue_holds
from orchestrator.reservations.store.holding import AdmittedGpus, Hold, HoldTarget, hold_once, hold_together
from orchestrator.tenants.store.ssh_keys import require_own_keys
from orchestrator.tenants.store.tenants import find_locked_quotas

BATCH_FAILURES = (
    TransactionConflict,
    ReservationTableFull,
    ExpirationIndexFull,
    OperationUnstorable,
    OperationInProgress,
    SlotOverflow,
    Invalid,
    DBAPIError,
)
"""Errors that one item of a batch can cause: each item is then tried alone."""
BATCH_TRIES_MAX = 2
"""How often a batch is tried, the second time without the items that are settled or whose quota is locked, before each of
the rest is tried alone."""


async def hold_resources(
    context: Context, catalogue: CatalogueCache, requests: Sequence[HoldRequest]
) -> list[Result | Deferred]:
    """Return one outcome per request, in input order: 201 with the reservation, or the stored answer of its key.

    Refusals, stored with the key: `ResourceNotFound`, `ResourceBusy`, `ResourceOutOfService`, `SkuUnavailable`,
    `ImageUnavailable`, `SshKeyNotFound`, `QuotaExceeded`, `TtlOutOfRange`, `WindowInvalid`, `SlotOverflow`. Not stored:
    `ReservationTableFull`, `ExpirationIndexFull`, `Forbidden`, `OperationInProgress`, and what `Database` raises.

    One transaction tries the list; items are independent. What it does not settle (locked units, no room at the first
    attempt, a quota) is `Deferred`. Keys within the list must be distinct per tenant. Raises
    `DatabaseUnavailable` or `OutcomeUnknown` for the list as a whole.
    """
    results: list[Result | None] = [None] * len(requests)
    targets: dict[int, HoldTarget] = {}
    if len(requests) > 1 or _picked_by_batch(requests[0]):
        for index, request in enumerate(requests):
            if request.hold.template is not None:
                continue  # its SSH keys are checked first, alone
            try:
                require_bounds(request.hold, context.limits)
                targets[index] = await resolve(catalogue, request.wanted)
            except Problem as refusal:
                results[index] = refusal
    outcomes = await _try_batch(context, [(requests[index].hold, target) for index, target in targets.items()])
    for index, outcome in zip(targets, outcomes, strict=True):
        results[index] = _settle(requests[index].hold, outcome)
    return [
        Deferred(partial(_hold_alone, context, catalogue, request)) if result is None else result
        for request, result in zip(requests, await _store_refusals(context, requests, results), strict=True)
    ]


def _picked_by_batch(request: HoldRequest) -> bool:
    """Whether a batch picks the nodes of this hold in its window; alone that takes several calls."""
    windowed = request.hold.starts_at is not None or request.hold.ends_at is not None
    return windowed and isinstance(request.wanted, GpuRequest) and request.wanted.count == 1


async def _try_batch(context: Context, holds: Sequence[tuple[Hold, HoldTarget]]) -> list[HoldOutcome]:
    """One outcome per hold; `TryAgain` where the batch failed, and for holds whose node or quota another transaction holds.

    Holds whose node was locked are tried a second time: nodes are locked for a call. A hold of a window then takes any node.
    """
    outcomes: list[HoldOutcome] = [TryAgain()] * len(holds)
    batch = dict(enumerate(holds))
    for _ in range(BATCH_TRIES_MAX):
        if not batch:
            break
        try:
            async with context.database.function_call(CallGroup.RESERVATIONS) as call:
                reach(CrashPoint.HOLD_RESOURCES_BEFORE_COMMIT)
                together = await hold_together(call, list(batch.values()), bounds_of(context.limits))
            reach(CrashPoint.HOLD_RESOURCES_AFTER_COMMIT)
        except OperationInProgress:
            async with context.database.autocommit() as tx:
                locked = await find_locked_quotas(tx, {hold.tenant_id for hold, _ in batch.values()})
            if not locked:
                break
            batch = {n: held for n, held in batch.items() if held[0].tenant_id not in locked}
        except QuotaExceeded as full:
            batch = {n: held for n, held in batch.items() if held[0].tenant_id != full.tenant_id}
        except BATCH_FAILURES:
            break
        else:
            for n, outcome in zip(batch, together, strict=True):
                outcomes[n] = outcome
            batch = {n: _outrun(*holds[n]) for n in batch if isinstance(outcomes[n], TryAgain)}
    return outcomes


def _outrun(hold: Hold, target: HoldTarget) -> tuple[Hold, HoldTarget]:
    """The hold for its second try in a batch: not only on the best node, which another transaction had locked."""
    return hold, replace(target, spread=random.randrange(1, 2**31)) if isinstance(target, AdmittedGpus) else target


def _settle(hold: Hold, outcome: HoldOutcome) -> Result | None:
    """The answer, or the refusal that another attempt would not change; None where one may help."""
    match outcome:
        case Held(body):
            return Answer(201, body, kept_seconds=hold.operation.retention_seconds)
        case StoredResponse():
            try:
                return replay(hold.operation, outcome)
            except Problem as conflict_or_fence:
                return conflict_or_fence
        case NoRoom() | TryAgain() | QuotaExceeded() | OperationInProgress():
            return None
        case Problem():
            return outcome
        case _:
            assert_never(outcome)


async def _store_refusals(
    context: Context, requests: Sequence[HoldRequest], results: Sequence[Result | None]
) -> list[Result | Deferred | None]:
    """The results, with each business refusal stored; all in one transaction."""
    refused = {
        index: Refused(requests[index].operation, result, requests[index].hold.tenant_id)
        for index, result in enumerate(results)
        if isinstance(result, Problem) and result.business
    }
    answers = await store_refusals_of(context, list(refused.values()))
    stored = dict(zip(refused, answers, strict=True))
    return [stored.get(index, result) for index, result in enumerate(results)]


async def _hold_alone(context: Context, catalogue: CatalogueCache, request: HoldRequest) -> Result:
    hold = request.hold
    try:
        try:
            require_bounds(hold, context.limits)
            if hold.template is not None:
                await _require_ssh_keys(context.for_tenants(hold.tenant_id), hold, hold.template)
            return await _hold(context, hold, await resolve(catalogue, request.wanted))
        except Problem as refusal:
            return await remembered(context, hold.operation, refusal, hold.tenant_id)
    except Problem as problem:
        return problem


async def _hold(context: Context, hold: Hold, target: HoldTarget) -> Answer:
    """Try until it is held or refused. Overdue holds that may be in the way expire first, once. Raises the refusal."""
    expired = False
    for _ in range(2 * TRIES_MAX):  # half of the attempts for slots free without an end, half for the window
        try:
            outcome = await _try_once(context, hold, target)
        except TransactionConflict:
            continue
        except OperationUnstorable:
            raise
        except (ReservationTableFull, ExpirationIndexFull, QuotaExceeded) as full:
            own = hold.tenant_id if isinstance(full, QuotaExceeded) else None
            if expired or not await expire_overdue_holds(context, tenant_id=own):
                raise
            expired = True
            continue
        picked = isinstance(target, AdmittedGpus) and target.picks is not None
        match outcome:
            case Held(body):
                return Answer(201, body, kept_seconds=hold.operation.retention_seconds)
            case StoredResponse():
                return replay(hold.operation, outcome)
            case TryAgain() | ResourceBusy() | ResourceNotFound() | ResourceOutOfService() if picked:
                target = await _pick(context, hold, target, wait=True)
            case TryAgain():
                continue
            case NoRoom():
                assert isinstance(target, AdmittedGpus), "only placement finds no room"
                if expired and target.wait:
                    target = await _pick(context, hold, target, wait=False)
                else:
                    await expire_overdue_holds(context, pool_id=target.units.pool.pool_id)
                    expired, target = True, replace(target, wait=True)
            case QuotaExceeded():
                if expired or not await expire_overdue_holds(context, tenant_id=hold.tenant_id):
                    raise outcome
                expired = True
            case Problem():
                raise outcome
            case _:
                assert_never(outcome)
    if isinstance(target, AdmittedGpus):
        raise contended()
    raise ResourceBusy("concurrent requests took these units in every attempt; retry", conflicts=[])


async def _pick(context: Context, hold: Hold, target: HoldTarget, *, wait: bool) -> AdmittedGpus:
    """The target with nodes and slots that are free in the hold's window. Raises `SkuUnavailable` if there are too few."""
    assert isinstance(target, AdmittedGpus), "names are not picked"
    picks = await _find_picks(context, hold, target)
    return replace(target, wait=wait, picks=picks)


async def _find_picks(context: Context, hold: Hold, target: AdmittedGpus) -> tuple[Pick, ...]:
    async with context.database.reading() as reading:
        outrun = target.picks is not None
        found = await find_room(reading, target.units, hold.starts_at, hold.ends_at, target.count, outrun=outrun)
        if len(found.picks) == target.count:
            return found.picks
        if hold.starts_at is not None or hold.ends_at is not None:
            raise no_room_in_window(target.units)
        room = await find_free_capacity(reading, target.units)
    raise no_room(target.units, room.free_gpus)


async def _try_once(context: Context, hold: Hold, target: HoldTarget) -> HoldOutcome:
    async with context.database.function_call(CallGroup.RESERVATIONS) as call:
        reach(CrashPoint.HOLD_RESOURCES_BEFORE_COMMIT)
        outcome = await hold_once(call, hold, target, bounds_of(context.limits))
    reach(CrashPoint.HOLD_RESOURCES_AFTER_COMMIT)
    return outcome


async def _require_ssh_keys(context: Context, hold: Hold, template: JsonObject) -> None:
    """Raise `SshKeyNotFound` unless the SSH keys of the allocation that starts at `starts_at` exist."""
    async with context.database.read_one() as reading:
        await require_own_keys(reading, hold.tenant_id, [UUID(key) for key in template["ssh_key_ids"]])
