"""Turns a reservation's claim over to an allocation, in one statement of the caller's transaction: no instant without an owner.

The caller holds the reservation's locks (`lock_reservation`) and has judged that its window has begun.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import orjson

from orchestrator.allocations.states import Actor
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.placement.admission import AdmittedUse, HeldUnits
from orchestrator.reservations.states import ReservationState
from orchestrator.reservations.store.reservations import ReservationChange, ReservationSubject, advance_reservation_if

STARTED_BY_ITSELF = "starts_at:"
"""How the keys of allocations begin that no operation made."""


@dataclass(frozen=True, slots=True)
class HeldClaim(HeldUnits):
    """A claim that a reservation still holds on a node. `stopped`: why the node or a slot cannot be used now, if so."""

    id: int
    node_id: UUID
    stopped: str | None


@dataclass(frozen=True, slots=True)
class Start:
    """The allocation that a claim becomes, as its tenant asked for it.

    `key` is that of the client's operation; None where it starts by itself, and no client waits for an answer.
    """

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
    """How long a worker has to pick it up, and how long it may wait for units that another one is still on (seconds)."""

    start_seconds: float
    units_seconds: float


# What can start at once goes first, then what must wait for its units, then what cannot be used.
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
    """The claim to turn over next; None if nothing is left that an allocation could run on."""
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
) -> dict[str, Any]:
    """What became of it, in the words of `turn_over_claim` (migrations); everything but `created` leaves nothing behind."""
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
    outcome: dict[str, Any] = (await tx.execute(_TURN_OVER, {"item": orjson.dumps(item).decode()})).scalar_one()
    tx.tells_operation |= outcome["outcome"] == "created" and start.key is not None
    return outcome


async def consume_with_last_claim(
    tx: Transaction, subject: ReservationSubject, start: Start, retention_seconds: float, actor: Actor
) -> None:
    """The reservation, whose last claim has just been turned over, is `consumed`."""
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
