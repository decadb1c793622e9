"""SQL that places creates: claim, allocation, operation and event commit together (P1, P2).

One call of `place_allocations` places a batch under one savepoint, and each item under its own savepoint after a constraint
refused one. `place_in_window` places one item on given slots. The pure modules of `placement` decide what to try.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import orjson
import sqlalchemy.exc

from berth.process.json_objects import JsonMapping, JsonObject
from orchestrator.catalogue.shapes import Shape
from orchestrator.database.calls import FunctionCall
from orchestrator.database.outcomes import RivalCommitted
from orchestrator.database.row_security import tenants_setting
from orchestrator.database.sqlstates import decode
from orchestrator.database.transactions import Reading
from orchestrator.operations.outcomes import StoredResponse
from orchestrator.operations.store.operations import Operation
from orchestrator.placement.admission import Admitted, AdmittedUnits
from orchestrator.placement.outcomes import LostRace, NoRoom, Placed, PlacementOutcome, StaleCatalogue
from orchestrator.placement.refusals import quota_exceeded, refusal_of_tenant
from orchestrator.placement.windows import Pick
from orchestrator.reservations.refusals import WindowInvalid


class QuotaMoved(Exception):
    """Another transaction used the tenant's quota after it was read; lock the quota first and place again."""


@dataclass(frozen=True, slots=True)
class Create:
    """One create, as its tenant asked for it."""

    operation: Operation
    tenant_id: UUID
    actor_id: str
    sku: str
    gpus: int
    region: str
    image: str | None
    ssh_key_ids: tuple[UUID, ...]
    name: str | None
    labels: dict[str, str]
    user_data: str | None
    correlation_id: UUID
    ends_at: datetime | None = None
    restart_policy: str = "always"


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """An admitted create. `wait`: wait for a locked node instead of skipping it.

    `pick`: the node and slots that are free in its window; no other node is tried.
    """

    create: Create
    admitted: Admitted
    start_seconds: float
    window_seconds_max: float
    wait: bool = False
    pick: Pick | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """Free capacity of a pool, read without locks: whether a node fits the request, and the free GPUs in total."""

    fits: bool
    free_gpus: int


# Each call names the tenants of its items for the policies (migrations/policies.sql), before the function runs.
_ALONE = """
select place_allocations(cast(%(items)s as jsonb), %(quota_first)s) from set_config('berth.tenants', %(tenants)s, true)
"""
_TOGETHER = """
with briefly as materialized (
    select shorten_lock_timeout() as waits, set_config('berth.tenants', %(tenants)s, true) as tenants
)
select place_allocations(cast(%(items)s as jsonb), %(quota_first)s) from briefly
"""
_IN_WINDOW = """
select place_in_window(cast(%(item)s as jsonb)) from set_config('berth.tenants', %(tenants)s, true)
"""


async def place_all(
    call: FunctionCall, requests: Sequence[PlacementRequest], *, quota_first: bool
) -> list[PlacementOutcome]:
    """Place a batch; return one outcome per request, in input order.

    Raises `QuotaMoved`, and `OperationInProgress` if another transaction holds a key or quota of the batch; a batch waits
    for such a lock only briefly.
    """
    items = [_item(n, request) for n, request in enumerate(requests)]
    statement = _TOGETHER if len(requests) > 1 else _ALONE
    decoded = await _call(call, statement, requests, {"items": items}, quota_first=quota_first)
    return [decoded[n] for n in range(len(requests))]


async def place_picked(
    call: FunctionCall, request: PlacementRequest, reservation_retire_seconds: float
) -> PlacementOutcome:
    """Place one request on its pick. Expires overdue holds that occupy these slots, in the same transaction (P5).

    `NoRoom`: the picked node is not in service any more, which says nothing about other nodes.

    Raises as `place_all` does.
    """
    assert request.pick is not None
    item = _item(0, request) | {
        "node_id": str(request.pick.node_id),
        "mask": request.pick.mask,
        "reservation_retire_seconds": reservation_retire_seconds,
    }
    return (await _call(call, _IN_WINDOW, [request], {"item": item}))[0]


async def _call(
    call: FunctionCall,
    statement: str,
    requests: Sequence[PlacementRequest],
    given: JsonMapping,
    **parameters: object,
) -> dict[int, PlacementOutcome]:
    """Outcome by the item's number."""
    packed = {name: orjson.dumps(value).decode() for name, value in given.items()}
    tenants = tenants_setting(request.create.tenant_id for request in requests)
    try:
        outcomes = await call.value(statement, {**packed, **parameters, "tenants": tenants})
    except sqlalchemy.exc.DBAPIError as error:
        match decode(error):
            case RivalCommitted(quota=True):
                raise QuotaMoved from error
            case _:
                raise
    return {int(outcome["n"]): _decode(outcome) for outcome in outcomes}


def _decode(outcome: JsonMapping) -> PlacementOutcome:
    """One outcome of `place_allocations` or `place_in_window`."""
    match outcome["outcome"]:
        case "created":
            return Placed(outcome["body"])
        case "existing":
            return StoredResponse.decode(outcome)
        case "no_room":
            return NoRoom()
        case "stale":
            return StaleCatalogue()
        case "lost":
            return LostRace()
        case "quota":
            return quota_exceeded(outcome["gpus_used"], outcome["gpus_limit"])
        case "window_over":
            return WindowInvalid("ends_at is in the past; send a later time")
        case "window_too_long":
            return WindowInvalid("the window is too long; send an earlier ends_at, or none for an open end")
        case word:
            return refusal_of_tenant(word)


def _item(n: int, request: PlacementRequest) -> JsonObject:
    create, admitted = request.create, request.admitted
    choices = admitted.decision.choices
    ends = {} if create.ends_at is None else {
        "ends_at": create.ends_at.isoformat(), "window_seconds_max": request.window_seconds_max,
    }  # fmt: skip
    return ends | {
        "n": n,
        "tenant_id": str(create.tenant_id),
        "key": create.operation.key,
        "fingerprint": create.operation.fingerprint.hex(),
        "retire_seconds": create.operation.retention_seconds,
        "correlation_id": str(create.correlation_id),
        "request_id": create.operation.request_id,
        "caller": create.operation.caller_with(create.correlation_id),
        "actor_id": create.actor_id,
        "sku": admitted.sku.name,
        "sku_row_version": admitted.sku.row_version,
        "shape": admitted.sku.shape,
        "gpu_model": admitted.sku.gpu_model,
        "gpus": admitted.gpus,
        "region": admitted.pool.region,
        "pool_id": admitted.pool.pool_id,
        "image": admitted.image.name,
        "image_row_version": admitted.image.row_version,
        "price_version": admitted.sku.price_version,
        "name": create.name,
        "labels": create.labels,
        "user_data": create.user_data,
        "restart_policy": create.restart_policy,
        "ssh_key_ids": [str(key) for key in create.ssh_key_ids],
        "classes": [choice.fit.number for choice in choices],
        "lows": [choice.low for choice in choices],
        "highs": [choice.high for choice in choices],
        "wait": request.wait,
        "start_seconds": request.start_seconds,
    }


# Counting stops at `gpus` nodes of a class, so that the cost does not grow with the fleet. Bare metal is a whole node: half of a
# larger one has the same class, and no create locks it (`lock_best_node`).
_ROOM = """
select coalesce(bool_or(c.fits), false) as fits, coalesce(sum(c.free * found.nodes), 0) as free_gpus
from unnest(cast(:classes as smallint[]), cast(:frees as integer[]), cast(:fits as boolean[])) as c(class, free, fits)
cross join lateral (
    select count(*) as nodes from (
        select from nodes n where n.pool_id = :pool and n.fit_class = c.class and n.state = 'active' and n.online
        and (cast(:whole as integer) is null or n.slot_count = :whole) limit :gpus
    ) enough
) found
where found.nodes > 0
"""


async def find_free_capacity(reading: Reading, admitted: AdmittedUnits) -> Room:
    """Free capacity for the request, locked nodes included: SKIP LOCKED reports "full" when nodes are only busy (TRAPS)."""
    fitting = [(choice.fit, True) for choice in admitted.decision.choices]
    others = [(fit, False) for fit, _ in admitted.decision.rejected if fit.free > 0]
    listed = fitting + others
    row = (
        await reading.execute(
            _ROOM,
            {
                "classes": [fit.number for fit, _ in listed],
                "frees": [fit.free for fit, _ in listed],
                "fits": [fits for _, fits in listed],
                "pool": admitted.pool.pool_id,
                "gpus": admitted.gpus,
                "whole": admitted.gpus if admitted.sku.shape == Shape.BAREMETAL else None,
            },
        )
    ).one()
    return Room(row.fits, int(row.free_gpus))
