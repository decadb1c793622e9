"""SQL that turns a reservation's claim over to an allocation, in one statement, so that the claim always has an owner.

The caller holds the reservation's locks (`lock_reservation`) and has evaluated that its window has begun.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID, uuid4

import orjson

from berth.process.json_objects import JsonMapping, JsonObject
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.placement.admission import AdmittedUse, HeldUnits
from orchestrator.placement.outcomes import StaleCatalogue
from orchestrator.placement.refusals import refusal_of_tenant
from orchestrator.reservations.outcomes import TurnedOver, TurnOverOutcome
from orchestrator.reservations.store.reservations import ReservationSubject
from orchestrator.tenants.principals import Actor

STARTED_BY_ITSELF = "starts_at:"
"""Prefix of the operation keys of allocations that start at `starts_at`."""


@dataclass(frozen=True, slots=True)
class HeldClaim(HeldUnits):
    """An open claim of a reservation on a node. `stopped`: why the node or a slot cannot be used now, if so."""

    id: int
    node_id: UUID
    stopped: str | None


@dataclass(frozen=True, slots=True)
class Start:
    """The tenant's request for the allocation. `key` is that of the client's operation; None if it starts at `starts_at`."""

    key: str | None
    fingerprint: bytes
    request_id: str | None
    correlation_id: UUID
    ssh_key_ids: tuple[UUID, ...]
    name: str | None
    labels: dict[str, str]
    user_data: str | None
    restart_policy: str = "always"


@dataclass(frozen=True, slots=True)
class StartBounds:
    """How long it may wait for a worker, and for units that another allocation still occupies (seconds)."""

    start_seconds: float
    units_seconds: float


_FIND_CLAIM = "select * from held_claim_of(:id)"
_TURN_OVER = "select turn_over_claim(cast(:item as jsonb))"
_CONSUME_WITH_LAST = """
select consume_with_last_claim(:id, :state, :row_version, :actor_kind, :judged_at, cast(:retention_seconds as float8), null, null)
"""


async def find_held_claim(reading: Reading, reservation_id: UUID) -> HeldClaim | None:
    """The claim to turn over next; None if no claim on a node is left."""
    row = (await reading.execute(_FIND_CLAIM, {"id": reservation_id})).first()
    return None if row is None else HeldClaim(**row._mapping)


def start_item(start: Start, bounds: StartBounds, actor: Actor) -> JsonObject:
    """The part of an item of `turn_over_claim` that is the same for every claim."""
    return {
        "key": start.key,
        "fingerprint": start.fingerprint.hex(),
        "correlation_id": str(start.correlation_id),
        "request_id": start.request_id,
        "actor_kind": actor.kind.value,
        "actor_id": actor.id,
        "name": start.name,
        "labels": start.labels,
        "user_data": start.user_data,
        "restart_policy": start.restart_policy,
        "ssh_key_ids": [str(key) for key in start.ssh_key_ids],
        "start_seconds": bounds.start_seconds,
        "units_seconds": bounds.units_seconds,
    }


def admitted_item(admitted: AdmittedUse) -> JsonObject:
    """The part of an item of `turn_over_claim` that the catalogue decided, with the row versions that it is still to have."""
    return {
        "sku": admitted.sku.name,
        "sku_row_version": admitted.sku.row_version,
        "shape": admitted.sku.shape,
        "gpu_model": admitted.sku.gpu_model,
        "image": admitted.image.name,
        "image_row_version": admitted.image.row_version,
        "price_version": admitted.sku.price_version,
    }


async def turn_over_claim(
    tx: Transaction,
    subject: ReservationSubject,
    claim: HeldClaim,
    admitted: AdmittedUse,
    start: Start,
    bounds: StartBounds,
    actor: Actor,
) -> TurnOverOutcome:
    """Turn the claim over to an allocation that starts at `starts_at`. Any outcome but `TurnedOver` leaves nothing behind."""
    item = (
        start_item(start, bounds, actor)
        | admitted_item(admitted)
        | {
            "reservation_id": str(subject.id),
            "claim_id": claim.id,
            "judged_at": subject.clock.isoformat(),
            "own_key": f"{STARTED_BY_ITSELF}{uuid4()}",
            "gpus": claim.gpus,
            "region": claim.region,
            "ends_at": None if subject.ends_at is None else subject.ends_at.isoformat(),
        }
    )
    return _decode((await tx.execute(_TURN_OVER, {"item": orjson.dumps(item).decode()})).scalar_one())


def _decode(outcome: JsonMapping) -> TurnOverOutcome:
    """The outcome of `turn_over_claim`."""
    match outcome["outcome"]:
        case "created":
            return TurnedOver(UUID(outcome["allocation_id"]), outcome["body"], outcome["last"])
        case "stale":
            return StaleCatalogue()
        case word:
            return refusal_of_tenant(word)


async def consume_with_last_claim(
    tx: Transaction, subject: ReservationSubject, retention_seconds: float, actor: Actor
) -> None:
    """Make the reservation `consumed`; its last claim was turned over in this transaction."""
    values = {
        "id": subject.id,
        "state": subject.state.value,
        "row_version": subject.row_version,
        "actor_kind": actor.kind.value,
        "judged_at": subject.clock,
        "retention_seconds": retention_seconds,
    }
    await tx.execute(_CONSUME_WITH_LAST, values)
