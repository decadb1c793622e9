"""SQL that holds units: claims, reservation, operation and event commit in one call (P1, P2).

The target is resolved before: names are parsed, a SKU is admitted with the node classes to try. `hold_once` evaluates
clock, claims and bounds after its locks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
import sqlalchemy.exc

from berth.process.json_objects import JsonMapping, JsonObject
from orchestrator.database.calls import FunctionCall
from orchestrator.database.outcomes import Bound, BoundReached, ConstraintRefused, RivalCommitted
from orchestrator.database.row_security import tenants_setting
from orchestrator.database.sqlstates import decode
from orchestrator.database.transactions import TransactionConflict
from orchestrator.operations.outcomes import StoredResponse, TryAgain
from orchestrator.operations.store.operations import Operation
from orchestrator.placement.admission import AdmittedUnits
from orchestrator.placement.outcomes import NoRoom
from orchestrator.placement.refusals import quota_exceeded, refusal_of_tenant
from orchestrator.placement.windows import Pick
from orchestrator.problems import Invalid, OperationInProgress
from orchestrator.reservations.outcomes import Held, HoldOutcome
from orchestrator.reservations.refusals import (
    ExpirationIndexFull,
    ReservationTableFull,
    ResourceBusy,
    ResourceNotFound,
    ResourceOutOfService,
    WindowInvalid,
)
from orchestrator.reservations.resource_names import NamedResources

BOUNDS_OF_ONE = frozenset({"payload_bounded", "reservations_resources_check"})
"""Constraints that refuse a reservation whose resource names do not fit into its event."""
# Each call names the tenants of its items for the policies (migrations/policies.sql), before the function runs.
_ALONE = "select hold_once(cast(%(item)s as jsonb)) from set_config('berth.tenants', %(tenants)s, true)"
# A batch reserves its keys one after another. Near the bound of a table, each insert waits for earlier inserts to commit: the
# holder of the batch's next key may wait for a row that the batch has reserved, a deadlock. So near a bound each item goes
# alone; a batch that starts this many rows below the bound cannot reach it.
_FAR_ROWS = 20_000
_TOGETHER = """
with room as materialized (
    select shorten_lock_timeout() as waits, set_config('berth.tenants', %(tenants)s, true) as tenants, least(
        nullif(current_setting('berth.operations_max', true), '')::bigint - sum(number) filter (where kind = 'operations'),
        %(reservations_max)s - sum(number) filter (where kind = 'reservations'),
        %(holds_max)s - sum(number) filter (where kind = 'holds')) as left_rows
    from live_rows where kind in ('operations', 'reservations', 'holds')
)
select case when left_rows >= %(far_rows)s then hold_together(cast(%(item)s as jsonb)) end from room
"""


@dataclass(frozen=True, slots=True)
class AdmittedGpus:
    """`count` times the units of a SKU. `wait`: wait for locked nodes instead of skipping them.

    `picks`: nodes and slots that are free in the window; no others are tried. `spread`: where a batch picks, 0 picks the best
    node, a random number any node that serves, after a lost race.
    """

    units: AdmittedUnits
    count: int
    wait: bool = False
    picks: tuple[Pick, ...] | None = None
    spread: int = 0


@dataclass(frozen=True, slots=True)
class Hold:
    """A tenant's request to hold units. Without `starts_at` it begins now, without `ends_at` it has no end."""

    operation: Operation
    tenant_id: UUID
    holder_id: str
    starts_at: datetime | None
    ends_at: datetime | None
    ttl_seconds: float
    template: JsonObject | None
    name: str | None
    correlation_id: UUID


@dataclass(frozen=True, slots=True)
class HoldBounds:
    """Bounds of a hold; settings of the same names. Durations are seconds."""

    window_seconds_max: float
    reservation_retention_seconds: float
    reservations_max: int
    holds_max: int
    shard: int


HoldTarget = NamedResources | AdmittedGpus


async def hold_once(call: FunctionCall, hold: Hold, target: HoldTarget, bounds: HoldBounds) -> HoldOutcome:
    """Hold the target, all or nothing. Any outcome but `Held` leaves nothing behind.

    Raises `ReservationTableFull`, `ExpirationIndexFull`, `Invalid` for more names than one reservation can list, and
    `TransactionConflict` if a concurrent transaction took the units or the key.
    """
    return _decode(await _call(call, _ALONE, [hold], _item(hold, target, bounds), bounds))


async def hold_together(
    call: FunctionCall, holds: Sequence[tuple[Hold, HoldTarget]], bounds: HoldBounds
) -> list[HoldOutcome]:
    """Hold a batch; return one outcome per hold, in input order. What would wait for a lock is `TryAgain`.

    Nodes for holds of a window are picked for the whole batch; a pool's claims are read once.

    Near the bound of a table every item is `TryAgain`. Raises what `hold_once` raises, for the batch as a whole, and
    `OperationInProgress` soon if another transaction holds a key or quota of the batch.
    """
    items = [_item(hold, target, bounds) for hold, target in holds]
    room = {"reservations_max": bounds.reservations_max, "holds_max": bounds.holds_max, "far_rows": _FAR_ROWS}
    outcomes = await _call(call, _TOGETHER, [hold for hold, _ in holds], items, bounds, **room)
    if outcomes is None:
        return [TryAgain()] * len(holds)
    return [_decode(outcome) for outcome in outcomes]


def _decode(outcome: JsonMapping) -> HoldOutcome:
    """One outcome of `hold_once` or `hold_together`."""
    match outcome["outcome"]:
        case "held":
            return Held(outcome["body"])
        case "existing":
            return StoredResponse.decode(outcome)
        case "no_room":
            return NoRoom()
        case "again":
            return TryAgain()
        case "busy":
            return ResourceBusy.in_window(outcome["conflicts"], outcome.get("since"))
        case "not_found":
            return ResourceNotFound.named(outcome["names"])
        case "out_of_service":
            return ResourceOutOfService.named(outcome["names"], outcome["reason"])
        case "window":
            return WindowInvalid(outcome["detail"])
        case "quota":
            return quota_exceeded(outcome["gpus_used"], outcome["gpus_limit"])
        case "in_progress":
            return OperationInProgress.ended_without_effect()
        case word:
            return refusal_of_tenant(word)


async def _call(
    call: FunctionCall, statement: str, holds: Sequence[Hold], item: object, bounds: HoldBounds, **room: int
) -> Any:
    tenants = tenants_setting(hold.tenant_id for hold in holds)
    try:
        return await call.value(statement, {"item": orjson.dumps(item).decode(), "tenants": tenants, **room})
    except sqlalchemy.exc.DBAPIError as error:
        match decode(error):
            case RivalCommitted(sqlstate):
                raise TransactionConflict(sqlstate) from error
            case BoundReached(bound) if bound in (Bound.RESERVATIONS, Bound.HOLDS):
                raise _full(bound, bounds) from error
            case ConstraintRefused(constraint) if constraint in BOUNDS_OF_ONE:
                message = "these names are too many or too long for one reservation; make several reservations"
                raise Invalid(f"resources: {message}", errors=[{"field": "resources", "message": message}]) from error
            case _:
                raise


def _full(reached: Bound, bounds: HoldBounds) -> ReservationTableFull | ExpirationIndexFull:
    if reached is Bound.HOLDS:
        return ExpirationIndexFull(f"the limit of {bounds.holds_max:,} holds is reached; nothing was held; retry later")
    return ReservationTableFull(
        f"the limit of {bounds.reservations_max:,} live reservations is reached; nothing was held; retry later"
    )


def _item(hold: Hold, target: HoldTarget, bounds: HoldBounds) -> JsonObject:
    return (_sku_item(target) if isinstance(target, AdmittedGpus) else _named_item(target)) | {
        "tenant_id": str(hold.tenant_id),
        "key": hold.operation.key,
        "fingerprint": hold.operation.fingerprint.hex(),
        "retire_seconds": hold.operation.retention_seconds,
        "correlation_id": str(hold.correlation_id),
        "request_id": hold.operation.request_id,
        "caller": hold.operation.caller_with(hold.correlation_id),
        "holder_id": hold.holder_id,
        "name": hold.name,
        "template": hold.template,
        "starts_at": None if hold.starts_at is None else hold.starts_at.isoformat(),
        "ends_at": None if hold.ends_at is None else hold.ends_at.isoformat(),
        "ttl_seconds": hold.ttl_seconds,
        "window_seconds_max": bounds.window_seconds_max,
        "retention_seconds": bounds.reservation_retention_seconds,
        "shard": bounds.shard,
        "reservations_max": bounds.reservations_max,
        "holds_max": bounds.holds_max,
    }


def _named_item(target: NamedResources) -> JsonObject:
    return {
        "resources": target.names,
        "nodes": [str(node) for node in target.nodes],
        "slots": [{"node": str(slot.node), "index": slot.index} for slot in target.slots],
        "registered": target.registered,
    }


def _sku_item(target: AdmittedGpus) -> JsonObject:
    units = target.units
    choices = units.decision.choices
    return _picked_item(target.picks) | {
        "sku": units.sku.name,
        "gpus": units.gpus,
        "region": units.pool.region,
        "quantity": target.count,
        "pool_id": units.pool.pool_id,
        "shape": units.sku.shape,
        "classes": [choice.fit.number for choice in choices],
        "lows": [choice.low for choice in choices],
        "highs": [choice.high for choice in choices],
        "wait": target.wait,
        "spread": target.spread,
    }


def _picked_item(picks: tuple[Pick, ...] | None) -> JsonObject:
    """The picks, and their slots in the form of named slots."""
    if picks is None:
        return {}
    slots = [
        {"node": str(pick.node_id), "index": index}
        for pick in picks
        for index in range(pick.mask.bit_length())
        if pick.mask >> index & 1
    ]
    chosen = [{"node": str(pick.node_id), "mask": pick.mask} for pick in picks]
    return {"picks": chosen, "nodes": [], "slots": slots, "registered": []}
