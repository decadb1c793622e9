"""Holds units in one server-side call (`hold_once`, migrations): claims, reservation, operation and event together (P1, P2).

What is wanted comes resolved: names parsed, a SKU admitted with the classes of nodes to try. The clock, the world and
the bounds are judged there, after the locks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
import psycopg
import sqlalchemy.exc

from orchestrator.database.sqlstates import RESERVATION_BOUND_REACHED, RIVAL_STATES, sqlstate_of
from orchestrator.database.transactions import WAITS_BRIEFLY, Transaction, TransactionConflict
from orchestrator.operations.store.operations import Operation
from orchestrator.placement.admission import AdmittedUnits
from orchestrator.placement.windows import Pick
from orchestrator.problems import Invalid
from orchestrator.reservations.refusals import ExpirationIndexFull, ReservationTableFull
from orchestrator.reservations.resource_names import NamedResources

BOUNDS_OF_ONE = frozenset({"payload_bounded", "reservations_resources_check"})
"""Constraints that a reservation passes when it holds more, or names it at greater length, than its event can tell."""
_ALONE = "select hold_once(cast(:item as jsonb))"
# A list takes one key after another, and near the bound of a table whoever adds a row waits for those that did: whoever has
# the key that the list wants next may be waiting for the room that the list has. So near a bound each goes alone. A list
# that begins so far from it does not come near it.
_FAR_ROWS = 20_000
_TOGETHER = f"""
with room as materialized (
    select {WAITS_BRIEFLY} as waits, least(
        nullif(current_setting('berth.operations_max', true), '')::bigint - sum(number) filter (where kind = 'operations'),
        :reservations_max - sum(number) filter (where kind = 'reservations'),
        :holds_max - sum(number) filter (where kind = 'holds')) as left_rows
    from live_rows where kind in ('operations', 'reservations', 'holds')
)
select case when left_rows >= {_FAR_ROWS} then hold_together(cast(:item as jsonb)) end from room
"""


@dataclass(frozen=True, slots=True)
class AdmittedGpus:
    """`count` times the units of a SKU; `wait` locks busy nodes instead of passing over them.

    `picks`: where each of them was found free in the window; no other place is tried.
    """

    units: AdmittedUnits
    count: int
    wait: bool = False
    picks: tuple[Pick, ...] | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """One hold, as its tenant asked for it; times may be absent: from now on, without an end."""

    operation: Operation
    tenant_id: UUID
    holder_id: str
    starts_at: datetime | None
    ends_at: datetime | None
    ttl_seconds: float
    template: dict[str, Any] | None
    name: str | None
    correlation_id: UUID


@dataclass(frozen=True, slots=True)
class HoldBounds:
    """What a hold must keep to; settings of the same names. Durations are seconds."""

    window_seconds_max: float
    reservation_retention_seconds: float
    reservations_max: int
    holds_max: int
    shard: int


Wanted = NamedResources | AdmittedGpus


async def hold_once(tx: Transaction, hold: Hold, wanted: Wanted, bounds: HoldBounds) -> dict[str, Any]:
    """What became of it, in the words of `hold_once` (migrations). Everything but `held` leaves nothing behind.

    Raises `ReservationTableFull`, `ExpirationIndexFull`, `Invalid` for more than one reservation can tell of, and
    `TransactionConflict` when rivals came between.
    """
    outcome: dict[str, Any] = await _call(tx, _ALONE, _item(hold, wanted, bounds), bounds)
    return outcome


async def hold_together(
    tx: Transaction, holds: Sequence[tuple[Hold, Wanted]], bounds: HoldBounds
) -> list[dict[str, Any]]:
    """The same for a list, in its order; `again` for one that would have to wait.

    For each of it near the bound of a table. Raises what `hold_once` raises, for the list as a whole, and
    `OperationInProgress` soon where somebody holds a key or a quota that one of it needs.
    """
    items = [_item(hold, wanted, bounds) for hold, wanted in holds]
    room = {"reservations_max": bounds.reservations_max, "holds_max": bounds.holds_max}
    outcomes: list[dict[str, Any]] | None = await _call(tx, _TOGETHER, items, bounds, **room)
    return [{"outcome": "again"}] * len(holds) if outcomes is None else outcomes


async def _call(tx: Transaction, statement: str, item: object, bounds: HoldBounds, **room: int) -> Any:
    try:
        result = await tx.execute(statement, {"item": orjson.dumps(item).decode(), **room})
    except sqlalchemy.exc.DBAPIError as error:
        state = sqlstate_of(error)
        if state in RIVAL_STATES:
            raise TransactionConflict(state) from error
        if state == RESERVATION_BOUND_REACHED:
            raise _full(error, bounds) from error
        if isinstance(error.orig, psycopg.Error) and error.orig.diag.constraint_name in BOUNDS_OF_ONE:
            message = "these are too many, or their names too long, for one reservation; make several"
            raise Invalid(f"resources: {message}", errors=[{"field": "resources", "message": message}]) from error
        raise
    return result.scalar_one()


def _full(error: sqlalchemy.exc.DBAPIError, bounds: HoldBounds) -> ReservationTableFull | ExpirationIndexFull:
    if "holds" in str(error.orig).splitlines()[0]:
        return ExpirationIndexFull(
            f"{bounds.holds_max} holds wait for their deadline, which is the most; none was made"
        )
    return ReservationTableFull(f"{bounds.reservations_max} reservations are live, which is the most; none was made")


def _item(hold: Hold, wanted: Wanted, bounds: HoldBounds) -> dict[str, Any]:
    return (_of_sku(wanted) if isinstance(wanted, AdmittedGpus) else _of_names(wanted)) | {
        "tenant_id": str(hold.tenant_id),
        "key": hold.operation.key,
        "fingerprint": hold.operation.fingerprint.hex(),
        "retire_seconds": hold.operation.retention_seconds,
        "correlation_id": str(hold.correlation_id),
        "request_id": hold.operation.request_id,
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


def _of_names(wanted: NamedResources) -> dict[str, Any]:
    return {
        "resources": wanted.names,
        "nodes": [str(node) for node in wanted.nodes],
        "slots": [{"node": str(slot.node), "index": slot.index} for slot in wanted.slots],
        "registered": wanted.registered,
    }


def _of_sku(wanted: AdmittedGpus) -> dict[str, Any]:
    units = wanted.units
    choices = units.decision.choices
    return _picked(wanted.picks) | {
        "sku": units.sku.name,
        "gpus": units.gpus,
        "region": units.pool.region,
        "quantity": wanted.count,
        "pool_id": units.pool.pool_id,
        "shape": units.sku.shape,
        "classes": [choice.fit.number for choice in choices],
        "lows": [choice.low for choice in choices],
        "highs": [choice.high for choice in choices],
        "wait": wanted.wait,
    }


def _picked(picks: tuple[Pick, ...] | None) -> dict[str, Any]:
    """The picks, and their slots as if they had been named."""
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
