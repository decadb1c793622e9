"""SQL that turns a reservation's claim over to an allocation, in one statement, so that the claim always has an owner.

The caller holds the reservation's locks (`lock_reservation`) and has evaluated that its window has begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import orjson

from orchestrator.billing.rules import BalanceDepleted
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.placement.admission import AdmittedUse, HeldUnits
from orchestrator.placement.outcomes import StaleCatalogue
from orchestrator.placement.refusals import ssh_key_missing, tenant_not_active
from orchestrator.reservations.outcomes import TurnedOver, TurnOverOutcome
from orchestrator.reservations.states import ReservationState
from orchestrator.reservations.store.reservations import ReservationChange, ReservationSubject, advance_reservation_if
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


@dataclass(frozen=True, slots=True)
class StartBounds:
    """How long it may wait for a worker, and for units that another allocation still occupies (seconds)."""

    start_seconds: float
    units_seconds: float


# Free units first, then occupied units, then units out of service.
_FIND_CLAIM = """
select c.id, c.node_id, n.region, n.gpu_model, n.shape, n.slot_count,
       (select sum(upper(part) - lower(part))::integer from unnest(c.units) part) as gpus,
       case when n.state <> 'active' then 'the node is ' || n.state
            when not n.online then 'the node is offline'
            else (select min(coalesce(s.reason, 'a slot is out of service')) from slots s
                  where s.node_id = n.id and s.state = 'out_of_service' and c.units @> s.unit) end as stopped
from claims c join nodes n on n.id = c.node_id
where c.owner_id = :id and c.owner_kind = 'reservation' and c.closed_at is null
order by 8 is not null, exists (select from claims o where o.node_id = c.node_id and o.closed_at is null and o.occupied
                                and o.units && c.units), c.id
limit 1
"""
_TURN_OVER = "select turn_over_claim(cast(:item as jsonb))"
_ALLOCATIONS = "select id from allocations where reservation_id = :id order by id"


async def find_held_claim(reading: Reading, reservation_id: UUID) -> HeldClaim | None:
    """The claim to turn over next; None if no claim on a node is left."""
    row = (await reading.execute(_FIND_CLAIM, {"id": reservation_id})).first()
    return None if row is None else HeldClaim(**row._mapping)


async def turn_over_claim(
    tx: Transaction,
    subject: ReservationSubject,
    claim: HeldClaim,
    admitted: AdmittedUse,
    start: Start,
    bounds: StartBounds,
    actor: Actor,
) -> TurnOverOutcome:
    """Turn the claim over. Any outcome but `TurnedOver` leaves nothing behind."""
    item = {
        "reservation_id": str(subject.id),
        "claim_id": claim.id,
        "judged_at": subject.clock.isoformat(),
        "key": start.key,
        "own_key": start.key or f"{STARTED_BY_ITSELF}{uuid4()}",
        "fingerprint": start.fingerprint.hex(),
        "correlation_id": str(start.correlation_id),
        "request_id": start.request_id,
        "actor_kind": actor.kind.value,
        "actor_id": actor.id,
        "sku": admitted.sku.name,
        "sku_row_version": admitted.sku.row_version,
        "shape": admitted.sku.shape,
        "gpu_model": admitted.sku.gpu_model,
        "gpus": claim.gpus,
        "region": claim.region,
        "image": admitted.image.name,
        "image_row_version": admitted.image.row_version,
        "price_version": admitted.sku.price_version,
        "name": start.name,
        "labels": start.labels,
        "user_data": start.user_data,
        "ssh_key_ids": [str(key) for key in start.ssh_key_ids],
        "ends_at": None if subject.ends_at is None else subject.ends_at.isoformat(),
        "start_seconds": bounds.start_seconds,
        "units_seconds": bounds.units_seconds,
    }
    outcome = (await tx.execute(_TURN_OVER, {"item": orjson.dumps(item).decode()})).scalar_one()
    if start.key is not None and "event_id" in outcome:
        tx.operation_event = UUID(outcome["event_id"])
    return _decode(outcome)


def _decode(outcome: Mapping[str, Any]) -> TurnOverOutcome:
    """The outcome of `turn_over_claim`."""
    match outcome["outcome"]:
        case "created":
            return TurnedOver(UUID(outcome["allocation_id"]), outcome["body"], outcome["last"])
        case "stale":
            return StaleCatalogue()
        case "ssh_key":
            return ssh_key_missing()
        case "tenant":
            return tenant_not_active()
        case "depleted":
            return BalanceDepleted.of_tenant()
        case word:
            raise ValueError(f"{word} is not an outcome of a turn-over")


async def consume_with_last_claim(
    tx: Transaction, subject: ReservationSubject, start: Start, retention_seconds: float, actor: Actor
) -> None:
    """Make the reservation `consumed`; its last claim was turned over in this transaction."""
    allocations = list((await tx.execute(_ALLOCATIONS, {"id": subject.id})).scalars())
    change = ReservationChange(
        ReservationState.CONSUMED,
        retention_seconds,
        {"allocation_ids": [str(one) for one in allocations]},
        operation_key=start.key,
        request_id=start.request_id,
        turned_over=True,
    )
    await advance_reservation_if(tx, subject, change, actor)
