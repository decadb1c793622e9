"""Hold units: named resources, or as many of a SKU as are wanted, all or nothing (docs/reference/reservations.md, "Holding").

One transaction holds: the reservation, its claims, its operation and its event. Losers look before they lock, so they are
answered without waiting for anybody; their refusal is stored alone, as every refusal is (DESIGN §6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy.exc import DBAPIError

from orchestrator.allocations.states import Shape
from orchestrator.billing.rules import BalanceDepleted
from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.transactions import TransactionConflict
from orchestrator.operations.execution import TRIES_MAX, Context, Later, Limits, Result, remembered, store_refusals_of
from orchestrator.operations.store.operations import Answer, Operation, answer_of_call
from orchestrator.operations.store.refusals import Refused
from orchestrator.placement import admission
from orchestrator.placement.admission import AdmittedUnits, admit, admit_units
from orchestrator.placement.refusals import no_room, no_room_in_window
from orchestrator.placement.store.placing import look_for_room
from orchestrator.placement.store.windows import find_room
from orchestrator.placement.windows import Pick
from orchestrator.problems import (
    Forbidden,
    Invalid,
    OperationInProgress,
    Problem,
    QuotaExceeded,
    SkuUnavailable,
    UnavailableReason,
)
from orchestrator.reservations.commands.expire_overdue import end_overdue_holds
from orchestrator.reservations.refusals import (
    ExpirationIndexFull,
    OperationTableFull,
    ReservationTableFull,
    ResourceBusy,
    ResourceNotFound,
    ResourceOutOfService,
    SlotOverflow,
    TtlOutOfRange,
    WindowInvalid,
)
from orchestrator.reservations.resource_names import RESOURCES_MAX, parse_resources
from orchestrator.reservations.states import MOMENT_MAX
from orchestrator.reservations.store.holding import AdmittedGpus, Hold, HoldBounds, Wanted, hold_once, hold_together
from orchestrator.tenants.store.ssh_keys import require_own_keys
from orchestrator.tenants.store.tenants import find_locked_quotas

_MOVED = frozenset({"again", "busy", "not_found", "out_of_service"})
"""What a pick meets when the world moved between the look and the lock."""
FOR_ONES_SAKE = (
    TransactionConflict,
    ReservationTableFull,
    ExpirationIndexFull,
    OperationTableFull,
    OperationInProgress,
    SlotOverflow,
    Invalid,
    DBAPIError,
)
"""Why a list may fail for the sake of one of its holds: each is tried alone."""
LISTS_MAX = 2
"""How often a list is tried, without those that it met trouble for, before each of it goes alone."""
REPRESENTABLE_SECONDS_MAX = int((MOMENT_MAX - MOMENT_MAX.replace(year=1970)).total_seconds())


@dataclass(frozen=True, slots=True)
class WantedGpus:
    """`count` times `gpus` of a SKU, each on one node; `image` where an allocation is to start by itself."""

    sku: str
    gpus: int
    region: str
    count: int
    image: str | None = None
    starts_allocation: bool = False


@dataclass(frozen=True, slots=True)
class AskedHold:
    """One hold, and what is to be held."""

    hold: Hold
    wanted: tuple[str, ...] | WantedGpus

    @property
    def operation(self) -> Operation:
        """The hold's."""
        return self.hold.operation


async def hold_resources(
    context: Context, catalogue: CatalogueCache, asked: Sequence[AskedHold]
) -> list[Result | Later]:
    """What became of each: 201 with the reservation, a hold until its deadline, or its key's first answer; in order.

    Refusals, remembered with the key: `ResourceNotFound`, `ResourceBusy`, `ResourceOutOfService`, `SkuUnavailable`,
    `ImageUnavailable`, `SshKeyNotFound`, `QuotaExceeded`, `TtlOutOfRange`, `WindowInvalid`, `SlotOverflow`. Not remembered:
    `ReservationTableFull`, `ExpirationIndexFull`, `Forbidden`, `OperationInProgress`, and what `Database` raises.

    One transaction tries them together; they do not see each other. Whatever is not settled by it (units that somebody has
    locked, no room at the first look, a quota) is for the caller to try alone, later. Keys within
    the list must be distinct per tenant; the caller sees to it. Raises `DatabaseUnavailable` or `OutcomeUnknown` for the list
    as a whole.
    """
    results: list[Result | Later | None] = [None] * len(asked)
    wanted: dict[int, Wanted] = {}
    if len(asked) > 1:
        for index, one in enumerate(asked):
            if one.hold.template is not None:
                continue  # it is looked at more closely, alone
            try:
                _require_representable(one.hold, context.limits)
                wanted[index] = await _resolve(catalogue, one.wanted)
            except Problem as refusal:
                results[index] = refusal
    outcomes = await _try_together(context, [(asked[index].hold, units) for index, units in wanted.items()])
    for index, outcome in zip(wanted, outcomes, strict=True):
        try:
            results[index] = _settled(asked[index].hold, outcome)
        except Problem as refusal:
            results[index] = refusal
    await _remember(context, asked, results)
    return [
        partial(_alone, context, catalogue, one) if result is None else result
        for one, result in zip(asked, results, strict=True)
    ]


async def _try_together(context: Context, holds: Sequence[tuple[Hold, Wanted]]) -> list[dict[str, Any]]:
    """What became of each; `again` where a list can do nothing for it, as for those whose quota somebody has locked."""
    outcomes: list[dict[str, Any]] = [{"outcome": "again"}] * len(holds)
    listed = list(range(len(holds)))
    for _ in range(LISTS_MAX):
        if len(listed) < 2:
            break
        try:
            async with context.database.autocommit() as tx:
                reach(CrashPoint.HOLD_RESOURCES_BEFORE_COMMIT)
                together = await hold_together(tx, [holds[n] for n in listed], _bounds(context.limits))
            reach(CrashPoint.HOLD_RESOURCES_AFTER_COMMIT)
        except OperationInProgress:
            async with context.database.autocommit() as tx:
                locked = await find_locked_quotas(tx, {holds[n][0].tenant_id for n in listed})
            if not locked:
                break
            listed = [n for n in listed if holds[n][0].tenant_id not in locked]
        except FOR_ONES_SAKE:
            break
        else:
            for n, outcome in zip(listed, together, strict=True):
                outcomes[n] = outcome
            break
    return outcomes


def _settled(hold: Hold, outcome: dict[str, Any]) -> Result | None:
    """The answer, if there is nothing more to try. Raises the refusal that nothing would change."""
    word = outcome["outcome"]
    if word in ("held", "existing"):
        return answer_of_call(hold.operation, outcome)
    if word in ("busy", "not_found", "out_of_service", "window", "tenant", "depleted"):
        raise _refusal_of(outcome)
    return None


async def _remember(context: Context, asked: Sequence[AskedHold], results: list[Result | Later | None]) -> None:
    """Store the refusals of business among the results, together; each becomes the answer that its client is told."""
    refused = {
        index: Refused(asked[index].hold.operation, result, asked[index].hold.tenant_id)
        for index, result in enumerate(results)
        if isinstance(result, Problem) and result.business
    }
    for index, answer in zip(refused, await store_refusals_of(context, list(refused.values())), strict=True):
        results[index] = answer


async def _alone(context: Context, catalogue: CatalogueCache, one: AskedHold) -> Result:
    hold = one.hold
    try:
        try:
            _require_representable(hold, context.limits)
            if hold.template is not None:
                await _require_startable(context, hold, hold.template)
            return await _hold(context, catalogue, hold, one.wanted)
        except Problem as refusal:
            return await remembered(context, hold.operation, refusal, hold.tenant_id)
    except Problem as problem:
        return problem


async def _hold(context: Context, catalogue: CatalogueCache, hold: Hold, asked: tuple[str, ...] | WantedGpus) -> Answer:
    wanted = await _resolve(catalogue, asked)
    room_made = False
    for _ in range(2 * TRIES_MAX):  # half of them for what is free for ever, half for what is free in the window
        try:
            outcome = await _try(context, hold, wanted)
        except TransactionConflict:
            continue
        except (ReservationTableFull, ExpirationIndexFull):
            if room_made or not await end_overdue_holds(context):
                raise
            room_made = True
            continue
        word = outcome["outcome"]
        if word in ("held", "existing"):
            return answer_of_call(hold.operation, outcome)
        if isinstance(wanted, AdmittedGpus) and wanted.picks is not None and word in _MOVED:
            wanted = replace(wanted, wait=True, picks=await _find_picks(context, hold, wanted))
            continue
        if word == "again":
            continue
        if word == "no_room" and isinstance(wanted, AdmittedGpus) and not (room_made and wanted.wait):
            await end_overdue_holds(context, pool_id=wanted.units.pool.pool_id)
            room_made, wanted = True, replace(wanted, wait=True)
            continue
        if word == "quota" and not room_made and await end_overdue_holds(context, tenant_id=hold.tenant_id):
            room_made = True
            continue
        if word == "no_room" and isinstance(wanted, AdmittedGpus):
            wanted = replace(wanted, wait=False, picks=await _find_picks(context, hold, wanted))
            continue
        raise _refusal_of(outcome)
    raise _contended(wanted)


async def _find_picks(context: Context, hold: Hold, wanted: AdmittedGpus) -> tuple[Pick, ...]:
    """Where the claims of the hold have their place in its window. Raises `SkuUnavailable` if they have none."""
    async with context.database.reading() as reading:
        outrun = wanted.picks is not None
        found = await find_room(reading, wanted.units, hold.starts_at, hold.ends_at, wanted.count, outrun=outrun)
        if len(found.picks) == wanted.count:
            return found.picks
        if hold.starts_at is not None or hold.ends_at is not None:
            raise no_room_in_window(wanted.units)
        room = await look_for_room(reading, wanted.units)
    raise no_room(wanted.units, room.free_gpus)


async def _resolve(catalogue: CatalogueCache, asked: tuple[str, ...] | WantedGpus) -> Wanted:
    """Names as what they mean, or the SKU as the catalogue offers it; nobody is refused by a stale copy of it."""
    if not isinstance(asked, WantedGpus):
        return parse_resources(asked)
    wanted = admission.Wanted(asked.sku, asked.gpus, asked.region, asked.image)
    judge = admit if asked.starts_allocation else admit_units
    try:
        units: AdmittedUnits = judge(await catalogue.current(), wanted)
    except Problem:
        units = judge(await catalogue.before_refusing(), wanted)
    if units.sku.shape == Shape.GPU_SLICE and asked.gpus * asked.count > RESOURCES_MAX:
        message = (
            f"{asked.count} times {asked.gpus} slots are more than the {RESOURCES_MAX} of one reservation; make several"
        )
        raise Invalid(f"count: {message}", errors=[{"field": "count", "message": message}])
    return AdmittedGpus(units, asked.count)


async def _try(context: Context, hold: Hold, wanted: Wanted) -> dict[str, Any]:
    async with context.database.autocommit() as tx:
        reach(CrashPoint.HOLD_RESOURCES_BEFORE_COMMIT)
        outcome = await hold_once(tx, hold, wanted, _bounds(context.limits))
    reach(CrashPoint.HOLD_RESOURCES_AFTER_COMMIT)
    return outcome


def _bounds(limits: Limits) -> HoldBounds:
    return HoldBounds(
        limits.window_seconds_max,
        limits.reservation_retention_seconds,
        limits.reservations_max,
        limits.holds_max,
        limits.shard,
    )


def _require_representable(hold: Hold, limits: Limits) -> None:
    """Deadlines and retirements can be written down, and the TTL is one that is offered."""
    kept = timedelta(seconds=limits.reservation_retention_seconds)
    last = max((moment for moment in (hold.starts_at, hold.ends_at) if moment is not None), default=None)
    if hold.ttl_seconds > REPRESENTABLE_SECONDS_MAX or (last is not None and MOMENT_MAX - last < kept):
        raise SlotOverflow("a deadline or a retirement would lie beyond the times that can be represented")
    if not 1 <= hold.ttl_seconds <= limits.hold_seconds_max:
        raise TtlOutOfRange(
            f"ttl_seconds must be from 1 to {limits.hold_seconds_max:g}",
            ttl_seconds_max=limits.hold_seconds_max,
        )


async def _require_startable(context: Context, hold: Hold, template: dict[str, Any]) -> None:
    """The allocation that starts by itself could start now, as far as its SSH keys go. Raises `SshKeyNotFound`."""
    async with context.database.read_one() as reading:
        await require_own_keys(reading, hold.tenant_id, [UUID(key) for key in template["ssh_key_ids"]])


def _refusal_of(outcome: dict[str, Any]) -> Problem:
    match outcome["outcome"]:
        case "busy":
            return ResourceBusy("somebody has a right to some of this in that window", conflicts=outcome["conflicts"])
        case "not_found":
            names = outcome["names"]
            return ResourceNotFound(f"there is no resource {names[0]!r}", resources=names)
        case "out_of_service":
            names, reason = outcome["names"], outcome["reason"]
            return ResourceOutOfService(f"{names[0]} is out of service: {reason}", reason=reason, resources=names)
        case "window":
            return WindowInvalid(outcome["detail"])
        case "quota":
            used, limit = outcome["gpus_used"], outcome["gpus_limit"]
            return QuotaExceeded(f"{used} of {limit} GPUs are in use", gpus_used=used, gpus_limit=limit)
        case "tenant":
            return Forbidden("this tenant is suspended")
        case "depleted":
            return BalanceDepleted.of_tenant()
        case "in_progress":
            return OperationInProgress("the first attempt with this key has just ended without effect; try again")
        case word:
            raise ValueError(f"{word} is not a refusal")


def _contended(wanted: Wanted) -> Problem:
    if isinstance(wanted, AdmittedGpus):
        return SkuUnavailable(
            "every node that fits is being taken by others right now; try again", reason=UnavailableReason.BUSY_NOW
        )
    return ResourceBusy("rivals are taking these at this moment; try again", conflicts=[])
