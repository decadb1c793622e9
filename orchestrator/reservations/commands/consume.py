"""A reservation's claim becomes its tenant's allocation (docs/reservations.md, "From a reservation to an allocation")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never
from uuid import UUID

import orjson

from orchestrator.allocations.states import Actor
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
from orchestrator.times import rfc3339


class _CatalogueMoved(Exception):
    """An operator changed the SKU or the image since it was read; read it again."""


@dataclass(frozen=True, slots=True)
class Consume:
    """What the tenant asks for: which reservation, who holds it, and the allocation.

    `sku` is needed where resources were named, and has to fit otherwise; `image` None is the SKU's default.
    """

    reservation_id: UUID
    holder_id: str
    sku: str | None
    image: str | None
    start: Start


async def consume_reservation(
    context: Context, catalogue: CatalogueCache, operation: Operation, actor: Actor, tenant_id: UUID, consume: Consume
) -> Answer:
    """Answer 201 with the allocation, which is `requested`: to be started, or waiting for its units if somebody overran.

    The reservation is `consumed` with its last claim. A hold past its deadline expires here, a window that is over is
    released, and both are refused. Refusals, remembered with the key: `ReservationNotFound`, `ReservationRetired`,
    `HolderMismatch`, `InvalidState` (also before its window begins), `ResourceNotAllocatable`, `ResourceOutOfService`,
    `SkuUnavailable`, `ImageUnavailable`, `SshKeyNotFound`. Raises, not remembered: `Forbidden`, `Invalid`.
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
                    "what the reservation holds is registered by operators; nothing runs on it"
                )
            admitted = _admit(offered, subject, claim, consume)
            if claim.stopped is not None:
                raise ResourceOutOfService(f"its units cannot be used now: {claim.stopped}", reason=claim.stopped)
            return await _turn_over(context, tx, subject, claim, admitted, consume, actor)

        try:
            return await run_once(context, operation, effect, tenant_id)
        except _CatalogueMoved:
            catalogue.forget()
    raise Overloaded("operators kept changing what is asked for; try again")


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
    why = "the hold's deadline has passed" if subject.overdue else "its window is over"
    return Done.refusing(InvalidState(f"{why}; the reservation is {to_state}", state=to_state), subject.id)


def _require_begun(subject: ReservationSubject) -> None:
    if not subject.live:
        raise InvalidState(f"the reservation is {subject.state}; it holds nothing any more", state=subject.state)
    if not subject.begun:
        raise InvalidState(
            "the reservation has not begun yet", state=subject.state, starts_at=rfc3339(subject.starts_at)
        )


def _admit(offered: Catalogue, subject: ReservationSubject, claim: HeldClaim, consume: Consume) -> AdmittedUse:
    """What is asked for, if the claim is of that kind. Pure."""
    sku = consume.sku if subject.sku is None else subject.sku
    if sku is None:
        message = "named resources can be of several SKUs; say which"
        raise Invalid(f"sku: {message}", errors=[{"field": "sku", "message": message}])
    if consume.sku not in (None, sku):
        raise SkuUnavailable(f"the reservation is for {sku}", reason=UnavailableReason.NOT_RESERVED)
    # The right to what was reserved as a SKU was sold, whatever becomes of the SKU; what was named is sold now.
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
            return Done(201, orjson.loads(body), allocation_id)
        case StaleCatalogue():
            raise _CatalogueMoved
        case Problem():
            raise outcome
        case _:
            assert_never(outcome)
