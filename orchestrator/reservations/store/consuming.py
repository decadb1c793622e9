"""SQL that turns a claim of a reservation over to an allocation, in one call: its nodes are locked for that call alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import orjson

from berth.process.json_objects import JsonMapping, JsonObject
from orchestrator.database.calls import FunctionCall
from orchestrator.operations.store.operations import Operation
from orchestrator.placement.admission import AdmittedUse, HeldUnits
from orchestrator.placement.outcomes import StaleCatalogue
from orchestrator.placement.refusals import refusal_of_tenant
from orchestrator.problems import InvalidState, Problem
from orchestrator.reservations.outcomes import Consumed, ConsumeOutcome, EndedInstead
from orchestrator.reservations.refusals import ResourceNotAllocatable, ResourceOutOfService
from orchestrator.reservations.states import ReservationState
from orchestrator.reservations.store.decoding import decode_common
from orchestrator.reservations.store.turn_over import Start, StartBounds, admitted_item, start_item
from orchestrator.tenants.principals import Actor

# Without locks: what the catalogue has to admit. The call evaluates the claims again under its locks. `offset 0`: as in
# `lock_reservation`.
_FIND_UNITS = """
select coalesce(jsonb_agg(distinct jsonb_build_object(
           'sku', r.sku, 'is_cancelled', exists (
               select from restore_replays w where w.kind = 'cancel' and w.subject_id = r.id and w.done_at is null),
           'units', jsonb_build_object(
               'region', n.region, 'gpu_model', n.gpu_model, 'shape', n.shape, 'slot_count', n.slot_count,
               'gpus', (select sum(upper(part) - lower(part))::integer from unnest(c.units) part)))), '[]')
from reservations r
join lateral (
    select node_id, units, owner_kind, closed_at from claims where owner_id = r.id offset 0
) c on c.owner_kind = 'reservation' and c.closed_at is null
join nodes n on n.id = c.node_id
where r.id = %(id)s and r.tenant_id = %(tenant_id)s
"""
_CONSUME = """
select consume_reservation(cast(%(item)s as jsonb), cast(%(admissions)s as jsonb), cast(%(refusals)s as jsonb))
from set_config('berth.caller', %(caller)s, true)
"""
_WHY_ENDED = {
    ReservationState.EXPIRED: "the hold's deadline has passed",
    ReservationState.RELEASED: "the window has ended",
}


@dataclass(frozen=True, slots=True)
class ConsumeRequest:
    """A tenant's request to turn one claim of its reservation over to an allocation."""

    operation: Operation
    actor: Actor
    tenant_id: UUID
    reservation_id: UUID
    holder_id: str
    start: Start


@dataclass(frozen=True, slots=True)
class ReservedUnits:
    """GPUs of a node that a reservation holds, and the SKU that they are reserved as; None if it names resources.

    `is_cancelled`: the reservation was cancelled in the lost interval of a restore, which is yet to be done again.
    """

    units: HeldUnits
    sku: str | None
    is_cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Admission:
    """What the catalogue says to the use of units: SKU and image, or the refusal."""

    units: HeldUnits
    admitted: AdmittedUse | Problem


async def find_reserved_units(call: FunctionCall, reservation_id: UUID, tenant_id: UUID) -> list[ReservedUnits]:
    """Each kind of units that a reservation of the tenant still holds, read without locks."""
    found = await call.value(_FIND_UNITS, {"id": reservation_id, "tenant_id": tenant_id})
    return [ReservedUnits(HeldUnits(**one["units"]), one["sku"], one["is_cancelled"]) for one in found]


async def consume_reservation(
    call: FunctionCall,
    request: ConsumeRequest,
    admissions: Sequence[Admission],
    bounds: StartBounds,
    retention_seconds: float,
) -> ConsumeOutcome:
    """Turn over the next claim, evaluated by the clock after the locks. A refusal in `admissions` is the outcome if the
    claim's units are those that were refused.

    Any outcome but `Consumed` and `EndedInstead` leaves nothing behind.
    """
    operation = request.operation
    item = start_item(request.start, bounds, request.actor) | {
        "scope": str(operation.scope),
        "retire_seconds": operation.retention_seconds,
        "tenant_id": str(request.tenant_id),
        "caller_tenant": str(request.tenant_id),
        "reservation_id": str(request.reservation_id),
        "holder_id": request.holder_id,
        "retention_seconds": retention_seconds,
    }
    refusals = {state.value: _ended(state).document() for state in _WHY_ENDED}
    values: dict[str, object] = {
        "item": item,
        "admissions": [_packed(n, one) for n, one in enumerate(admissions)],
        "refusals": refusals,
    }
    values["caller"] = operation.caller or {}
    outcome = await call.value(_CONSUME, {name: orjson.dumps(value).decode() for name, value in values.items()})
    return _decode(outcome, admissions)


def _packed(n: int, admission: Admission) -> JsonObject:
    held, admitted = admission.units, admission.admitted
    units = {
        "gpus": held.gpus, "region": held.region, "gpu_model": held.gpu_model, "shape": held.shape,
        "slot_count": held.slot_count,
    }  # fmt: skip
    return {"units": units} | ({"refusal": n} if isinstance(admitted, Problem) else admitted_item(admitted))


def _ended(state: ReservationState) -> InvalidState:
    return InvalidState(f"{_WHY_ENDED[state]}; the reservation is {state}", state=state)


def _decode(outcome: JsonMapping, admissions: Sequence[Admission]) -> ConsumeOutcome:
    """The outcome of `consume_reservation`."""
    match outcome["outcome"]:
        case "created":
            return Consumed(outcome["body"])
        case "refused":
            return EndedInstead(outcome["status"], outcome["body"])
        case "stale":
            return StaleCatalogue()
        case "early":
            at = outcome["starts_at"]
            return InvalidState(f"the window begins at {at}; retry then", state=outcome["state"], starts_at=at)
        case "no_claim":
            return ResourceNotAllocatable(
                "the reservation holds only registered resources, on which no allocation can run"
            )
        case "not_admitted":
            refusal = admissions[outcome["refusal"]].admitted
            assert isinstance(refusal, Problem), "only refusals are answered"
            return refusal
        case "stopped":
            reason = outcome["reason"]
            return ResourceOutOfService(f"the reserved units cannot be used now: {reason}; retry later", reason=reason)
        case "ssh_key" | "tenant" | "depleted" as word:
            return refusal_of_tenant(word)
        case _:
            return decode_common(outcome, "a hold or a confirmed window can be consumed")
