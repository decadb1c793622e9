"""A confirmed reservation starts its allocation by itself, once its window has begun (docs/reservations.md)."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import assert_never
from uuid import UUID, uuid4

from orchestrator.allocations.states import Actor, ActorKind
from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import TRIES_MAX, Context, transact
from orchestrator.placement.admission import admit_use
from orchestrator.placement.inventory import Catalogue
from orchestrator.placement.outcomes import StaleCatalogue
from orchestrator.problems import Overloaded, Problem
from orchestrator.reservations.outcomes import TurnedOver
from orchestrator.reservations.states import ReservationState
from orchestrator.reservations.store.reservations import (
    ReservationChange,
    ReservationSubject,
    advance_reservation_if,
    lock_reservation,
)
from orchestrator.reservations.store.turn_over import (
    HeldClaim,
    Start,
    StartBounds,
    consume_with_last_claim,
    find_held_claim,
    turn_over_claim,
)

_ACTOR = Actor(ActorKind.TENANT, "starts_at")


class Started(StrEnum):
    """What became of it."""

    ONE = "one"
    """One allocation exists now; more may follow."""
    LAST = "last"
    """The reservation is consumed."""
    FAILED = "failed"
    """It cannot become what it was to become, whatever its node: it has ended, and `reservation.failed` says why."""
    STOPPED = "stopped"
    """Its units are out of service; nothing was done."""
    NOT_DUE = "not_due"
    """Nothing is to be started (any more)."""


class _CatalogueMoved(Exception):
    """An operator changed the SKU or the image since it was read; read it again."""


async def start_reservation(context: Context, catalogue: CatalogueCache, reservation_id: UUID) -> Started:
    """Turn one of its claims over to the allocation of its template, judged after its locks; answers what became of it."""
    for _ in range(TRIES_MAX):
        offered = await catalogue.before_refusing()

        async def work(tx: Transaction, offered: Catalogue = offered) -> Started:
            subject = await lock_reservation(tx, reservation_id, None)
            if subject is None or subject.state is not ReservationState.CONFIRMED or subject.template is None:
                return Started.NOT_DUE
            claim = await find_held_claim(tx, subject.id)
            if not subject.begun or subject.over or claim is None:
                return Started.NOT_DUE
            if claim.stopped is not None:
                return Started.STOPPED
            return await _start(context, tx, offered, subject, claim)

        try:
            return await transact(context, work)
        except _CatalogueMoved:
            catalogue.forget()
    raise Overloaded("operators kept changing what is to be started; try again")


async def _start(
    context: Context, tx: Transaction, offered: Catalogue, subject: ReservationSubject, claim: HeldClaim
) -> Started:
    assert subject.sku is not None, "only reservations of a SKU start by themselves"
    assert subject.template is not None, "the caller looked"
    try:
        admitted = admit_use(offered, subject.sku, claim, subject.template["image"], sold=True)
    except Problem as refusal:
        return await _fail(context, tx, subject, refusal)
    limits = context.limits
    bounds = StartBounds(limits.requested_seconds_max, limits.units_seconds_max)
    start = _start_of(subject, claim)
    outcome = await turn_over_claim(tx, subject, claim, admitted, start, bounds, _ACTOR)
    match outcome:
        case TurnedOver(last=True):
            await consume_with_last_claim(tx, subject, start, limits.reservation_retention_seconds, _ACTOR)
            return Started.LAST
        case TurnedOver():
            return Started.ONE
        case StaleCatalogue():
            raise _CatalogueMoved
        case Problem():
            return await _fail(context, tx, subject, outcome)
        case _:
            assert_never(outcome)


def _start_of(subject: ReservationSubject, claim: HeldClaim) -> Start:
    template = subject.template
    assert template is not None
    return Start(
        key=None,
        fingerprint=hashlib.sha256(f"{subject.name}/claims/{claim.id}".encode()).digest(),
        request_id=None,
        correlation_id=uuid4(),
        ssh_key_ids=tuple(dict.fromkeys(UUID(key) for key in template["ssh_key_ids"])),
        name=template["name"],
        labels=template["labels"],
        user_data=template["user_data"],
    )


async def _fail(context: Context, tx: Transaction, subject: ReservationSubject, refusal: Problem) -> Started:
    change = ReservationChange(
        ReservationState.CANCELLED,
        context.limits.reservation_retention_seconds,
        failure=(refusal.code, refusal.detail),
    )
    await advance_reservation_if(tx, subject, change, Actor(ActorKind.WORKER, "starts_at"))
    return Started.FAILED
