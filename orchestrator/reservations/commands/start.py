"""Starts the allocation of a confirmed reservation's template once its window has begun (docs/reference/reservations.md)."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import assert_never
from uuid import UUID, uuid4

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
    ReservationEnd,
    ReservationSubject,
    end_reservation,
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
from orchestrator.restores.store import is_cancelled
from orchestrator.tenants.principals import Actor, ActorKind

_ACTOR = Actor(ActorKind.TENANT, "starts_at")


class Started(StrEnum):
    """The outcome of a start."""

    ONE = "one"
    """One allocation was created; more claims are left."""
    LAST = "last"
    """The last claim was turned over; the reservation is consumed."""
    FAILED = "failed"
    """The template cannot start on any node; the reservation ended, and `reservation.failed` contains the reason."""
    STOPPED = "stopped"
    """Its units are out of service; nothing was changed."""
    NOT_DUE = "not_due"
    """There is nothing to start, or not yet."""


class _CatalogueMoved(Exception):
    """An operator changed the SKU or the image since it was read; read the catalogue again."""


async def start_reservation(context: Context, catalogue: CatalogueCache, reservation_id: UUID) -> Started:
    """Turn one claim over to an allocation of its template, evaluated after its locks.

    `NOT_DUE` too if it was cancelled in the lost interval of a restore: the replay of its cancel ends it.
    """
    for _ in range(TRIES_MAX):
        offered = await catalogue.before_refusing()

        async def work(tx: Transaction, offered: Catalogue = offered) -> Started:
            subject = await lock_reservation(tx, reservation_id, None)
            if subject is None or subject.state is not ReservationState.CONFIRMED or subject.template is None:
                return Started.NOT_DUE
            claim = await find_held_claim(tx, subject.id)
            if not subject.begun or subject.over or claim is None:
                return Started.NOT_DUE
            if await is_cancelled(tx, subject.id):
                return Started.NOT_DUE
            if claim.stopped is not None:
                return Started.STOPPED
            return await _start(context, tx, offered, subject, claim)

        try:
            return await transact(context, work)
        except _CatalogueMoved:
            catalogue.forget()
    raise Overloaded(f"the catalogue changed in each of {TRIES_MAX} attempts; retry")


async def _start(
    context: Context, tx: Transaction, offered: Catalogue, subject: ReservationSubject, claim: HeldClaim
) -> Started:
    assert subject.sku is not None, "only reservations of a SKU have a template"
    assert subject.template is not None, "the caller checked it"
    try:
        template = subject.template
        has_user_data = template.get("user_data") is not None
        admitted = admit_use(offered, subject.sku, claim, template.get("image"), has_user_data=has_user_data, sold=True)
    except Problem as refusal:
        return await _fail(context, tx, subject, refusal)
    limits = context.limits
    bounds = StartBounds(limits.requested_seconds_max, limits.units_seconds_max)
    start = _start_of(subject, claim)
    outcome = await turn_over_claim(tx, subject, claim, admitted, start, bounds, _ACTOR)
    match outcome:
        case TurnedOver(last=True):
            await consume_with_last_claim(tx, subject, limits.reservation_retention_seconds, _ACTOR)
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
    # A stored template may lack members that this version has: only `ssh_key_ids` is required in each of them.
    return Start(
        key=None,
        fingerprint=hashlib.sha256(f"{subject.name}/claims/{claim.id}".encode()).digest(),
        request_id=None,
        correlation_id=uuid4(),
        ssh_key_ids=tuple(dict.fromkeys(UUID(key) for key in template["ssh_key_ids"])),
        name=template.get("name"),
        labels=template.get("labels", {}),
        user_data=template.get("user_data"),
        restart_policy=template.get("restart_policy", "always"),
    )


async def _fail(context: Context, tx: Transaction, subject: ReservationSubject, refusal: Problem) -> Started:
    change = ReservationEnd(
        ReservationState.CANCELLED,
        context.limits.reservation_retention_seconds,
        failure=(refusal.code, refusal.detail),
    )
    await end_reservation(tx, subject, change, Actor(ActorKind.WORKER, "starts_at"))
    return Started.FAILED
