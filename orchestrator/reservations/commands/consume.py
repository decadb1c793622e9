"""Consume: a claim of a reservation becomes an allocation (docs/reference/reservations.md).

The catalogue is read and the use of the reserved units admitted without locks; one call then locks, decides and writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never
from uuid import UUID

from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.calls import CallGroup
from orchestrator.database.transactions import TransactionConflict
from orchestrator.operations.execution import TRIES_MAX, Context, remembered
from orchestrator.operations.outcomes import StoredResponse, TryAgain
from orchestrator.operations.queries import with_version
from orchestrator.operations.store.operations import Answer, Operation, replay
from orchestrator.placement.admission import AdmittedUse, admit_use
from orchestrator.placement.inventory import Catalogue
from orchestrator.placement.outcomes import StaleCatalogue
from orchestrator.problems import Invalid, InvalidState, Overloaded, Problem, SkuUnavailable, UnavailableReason
from orchestrator.reservations.outcomes import Consumed, ConsumeOutcome, EndedInstead, Missing
from orchestrator.reservations.queries import why_missing
from orchestrator.reservations.store import consuming
from orchestrator.reservations.store.consuming import Admission, ConsumeRequest, ReservedUnits, find_reserved_units
from orchestrator.reservations.store.turn_over import Start, StartBounds
from orchestrator.tenants.principals import Actor


@dataclass(frozen=True, slots=True)
class Consume:
    """A request to consume one claim of a reservation.

    `sku` is required if the reservation names resources, and must match otherwise; `image` None is the SKU's default.
    """

    reservation_id: UUID
    holder_id: str
    sku: str | None
    image: str | None
    start: Start


async def consume_reservation(
    context: Context, catalogue: CatalogueCache, operation: Operation, actor: Actor, tenant_id: UUID, consume: Consume
) -> Answer:
    """Return 201 with the allocation in `requested`; it waits for its units if the previous allocation still occupies them.

    The reservation is `consumed` with its last claim. An overdue hold expires here, a window past its end is released, and
    both are refused. Refusals, stored with the key: `ReservationNotFound`, `ReservationRetired`,
    `HolderMismatch`, `InvalidState` (also before its window begins), `ResourceNotAllocatable`, `ResourceOutOfService`,
    `SkuUnavailable`, `ImageUnavailable`, `SshKeyNotFound`. Not stored: `Forbidden`, `Invalid`.
    """
    request = ConsumeRequest(operation, actor, tenant_id, consume.reservation_id, consume.holder_id, consume.start)

    async def run() -> Answer:
        try:
            return await _consume(context, catalogue, request, consume)
        except Problem as refusal:
            return await remembered(context, operation, refusal, tenant_id)

    if context.gate is None:
        return await run()
    return await context.gate.answer(operation, lambda: with_version(context.database, operation, run()))


async def _consume(context: Context, catalogue: CatalogueCache, request: ConsumeRequest, consume: Consume) -> Answer:
    """Try a bounded number of times. Raises its refusal."""
    outcome: ConsumeOutcome = TryAgain()
    for _ in range(TRIES_MAX):
        offered = await catalogue.before_refusing()
        async with context.database.read_call(CallGroup.RESERVATIONS) as call:
            reserved = await find_reserved_units(call, request.reservation_id, request.tenant_id)
        outcome = await _try_once(context, request, [_admission(offered, one, consume) for one in reserved])
        match outcome:
            case Consumed(body):
                return Answer(201, body, kept_seconds=request.operation.retention_seconds)
            case EndedInstead(status, body):
                return Answer(status, body, kept_seconds=request.operation.retention_seconds)
            case StoredResponse():
                return replay(request.operation, outcome)
            case Missing():
                raise await why_missing(context, request.reservation_id)
            case TryAgain():
                continue
            case StaleCatalogue():
                catalogue.forget()
            case Problem():
                raise outcome
            case _:
                assert_never(outcome)
    if isinstance(outcome, StaleCatalogue):
        raise Overloaded(f"the catalogue changed in each of {TRIES_MAX} attempts; retry")
    raise Overloaded("concurrent requests for the same objects kept this one from running; retry with the same key")


async def _try_once(context: Context, request: ConsumeRequest, admissions: Sequence[Admission]) -> ConsumeOutcome:
    limits = context.limits
    bounds = StartBounds(limits.requested_seconds_max, limits.units_seconds_max)
    try:
        async with context.database.function_call(CallGroup.RESERVATIONS) as call:
            reach(CrashPoint.CONSUME_RESERVATION_BEFORE_COMMIT)
            outcome = await consuming.consume_reservation(
                call, request, admissions, bounds, limits.reservation_retention_seconds
            )
        reach(CrashPoint.CONSUME_RESERVATION_AFTER_COMMIT)
        return outcome
    except TransactionConflict:
        return TryAgain()


def _admission(offered: Catalogue, reserved: ReservedUnits, consume: Consume) -> Admission:
    try:
        return Admission(reserved.units, _admit(offered, reserved, consume))
    except Problem as refusal:
        return Admission(reserved.units, refusal)


def _admit(offered: Catalogue, reserved: ReservedUnits, consume: Consume) -> AdmittedUse:
    """SKU and image of the allocation, if the units can serve them. Pure."""
    if reserved.is_cancelled:
        raise InvalidState(
            "the reservation was cancelled before a restore of the control plane, which cancels it again; make another one",
            state="cancelled",
        )
    sku = consume.sku if reserved.sku is None else reserved.sku
    if sku is None:
        message = "required, because the reservation names resources"
        raise Invalid(f"sku: {message}", errors=[{"field": "sku", "message": message}])
    if consume.sku not in (None, sku):
        raise SkuUnavailable(
            f"the reservation is for {sku}, not {consume.sku}; omit sku or send {sku}",
            reason=UnavailableReason.NOT_RESERVED,
        )
    # Units reserved as a SKU were sold as it, even if it was retired since; named resources are sold now.
    has_user_data, sold = consume.start.user_data is not None, reserved.sku is not None
    return admit_use(offered, sku, reserved.units, consume.image, has_user_data=has_user_data, sold=sold)
