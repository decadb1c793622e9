"""Consume: a claim of a reservation becomes an allocation (docs/reference/reservations.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never
from uuid import UUID

from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import TRIES_MAX, Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.placement.admission import AdmittedUse, admit_use
from orchestrator.placement.inventory import Catalogue
from orchestrator.placement.outcomes import StaleCatalogue
from orchestrator.problems import Invalid, InvalidState, Overloaded, Problem, SkuUnavailable, UnavailableReason
from orchestrator.reservations.outcomes import TurnedOver
from orchestrator.reservations.refusals import HolderMismatch, ResourceNotAllocatable, ResourceOutOfService
from orchestrator.reservations.states import ReservationState
from orchestrator.reservations.store.reservations import (
    ReservationChange,
    ReservationSubject,
    advance_reservation_if,
    lock_reservation,
)
from orchestrator.reservations.store.rows import why_missing
from orchestrator.reservations.store.turn_over import (
    HeldClaim,
    Start,
    StartBounds,
    consume_with_last_claim,
    find_held_claim,
    turn_over_claim,
)
from orchestrator.tenants.principals import Actor
from orchestrator.times import rfc3339


class _CatalogueMoved(Exception):
    """An operator changed the SKU or the image since it was read; read the catalogue again."""


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
    for _ in range(TRIES_MAX):
        offered = await catalogue.before_refusing()

        async def effect(tx: Transaction, offered: Catalogue = offered) -> Done:
            subject = await lock_reservation(tx, consume.reservation_id, tenant_id)
            if subject is None:
                raise await why_missing(tx, consume.reservation_id, context.limits.shard)
            if subject.holder_id != consume.holder_id:
                raise HolderMismatch.of_reservation()
            if subject.overdue or subject.over:
                return await _end(context, tx, subject, operation, actor)
            _require_begun(subject)
            claim = await find_held_claim(tx, subject.id)
            if claim is None:
                raise ResourceNotAllocatable(
                    "the reservation holds only registered resources, on which no allocation can run"
                )
            admitted = _admit(offered, subject, claim, consume)
            if claim.stopped is not None:
                raise ResourceOutOfService(
                    f"the reserved units cannot be used now: {claim.stopped}; retry later", reason=claim.stopped
                )
            return await _turn_over(context, tx, subject, claim, admitted, consume, actor)

        try:
            return await run_once(context, operation, effect, tenant_id)
        except _CatalogueMoved:
            catalogue.forget()
    raise Overloaded(f"the catalogue changed in each of {TRIES_MAX} attempts; retry")


async def _end(
    context: Context, tx: Transaction, subject: ReservationSubject, operation: Operation, actor: Actor
) -> Done:
    to_state = ReservationState.EXPIRED if subject.overdue else ReservationState.RELEASED
    change = ReservationChange(
        to_state,
        context.limits.reservation_retention_seconds,
        operation_key=operation.key,
        request_id=operation.request_id,
    )
    await advance_reservation_if(tx, subject, change, actor)
    why = "the hold's deadline has passed" if subject.overdue else "the window has ended"
    return Done.refusing(InvalidState(f"{why}; the reservation is {to_state}", state=to_state), subject.id)


def _require_begun(subject: ReservationSubject) -> None:
    if not subject.live:
        raise InvalidState(
            f"the reservation is {subject.state}; only a hold or a confirmed window can be consumed",
            state=subject.state,
        )
    if not subject.begun:
        raise InvalidState(
            f"the window begins at {rfc3339(subject.starts_at)}; retry then",
            state=subject.state,
            starts_at=rfc3339(subject.starts_at),
        )


def _admit(offered: Catalogue, subject: ReservationSubject, claim: HeldClaim, consume: Consume) -> AdmittedUse:
    """SKU and image of the allocation, if the claim can serve them. Pure."""
    sku = consume.sku if subject.sku is None else subject.sku
    if sku is None:
        message = "required, because the reservation names resources"
        raise Invalid(f"sku: {message}", errors=[{"field": "sku", "message": message}])
    if consume.sku not in (None, sku):
        raise SkuUnavailable(
            f"the reservation is for {sku}, not {consume.sku}; omit sku or send {sku}",
            reason=UnavailableReason.NOT_RESERVED,
        )
    # Units reserved as a SKU were sold as it, even if it was retired since; named resources are sold now.
    return admit_use(offered, sku, claim, consume.image, sold=subject.sku is not None)


async def _turn_over(
    context: Context,
    tx: Transaction,
    subject: ReservationSubject,
    claim: HeldClaim,
    admitted: AdmittedUse,
    consume: Consume,
    actor: Actor,
) -> Done:
    limits = context.limits
    bounds = StartBounds(limits.requested_seconds_max, limits.units_seconds_max)
    outcome = await turn_over_claim(tx, subject, claim, admitted, consume.start, bounds, actor)
    match outcome:
        case TurnedOver(allocation_id, body, last):
            if last:
                await consume_with_last_claim(tx, subject, consume.start, limits.reservation_retention_seconds, actor)
            return Done(201, body, allocation_id)
        case StaleCatalogue():
            raise _CatalogueMoved
        case Problem():
            raise outcome
        case _:
            assert_never(outcome)
