"""Checks clients' responses against the log: one answer per key, every effect and every refusal justified.

A refusal is decided on what its transaction saw, between the moment it was asked for and its place in the log. It is
justified if the model, in one of the states of that span and by the clock at one of its ends, answers the same and
changes nothing. A quota only has to be exceeded if nothing had been given back within the span.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from tests.model import reservations
from tests.model.log import Event, units_of
from tests.model.replaying import Replay
from tests.model.reservations import HOLD_SECONDS_MAX, ByHolder, Hold, objections_to_hold
from tests.model.state import Outcome, State

INDEFINITE = frozenset({"operation_in_progress", "overloaded", "outcome_unknown", "database_unavailable"})
"""Answers that say nothing about the operation's outcome, or that nothing was done and nothing is remembered."""

_EFFECTS = {"hold": "reservation.held", "confirm": "reservation.confirmed", "cancel": "reservation.cancelled"}


@dataclass(frozen=True, slots=True)
class Wish:
    """What a client asked for. Confirm and cancel name `reservation`, hold names `resources` (or how
    many GPUs of what), window and `ttl_seconds`.
    """

    verb: Literal["hold", "confirm", "cancel"]
    holder: str
    reservation: str = ""
    resources: tuple[str, ...] = ()
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    ttl_seconds: float = 0.0
    sku: str = ""
    gpus: int = 0
    count: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """One attempt: the caller, request and key; the log's visible version and the database's clock before it was sent; the
    newest version after the response; and the response's code.
    """

    tenant: str
    key: str
    wish: Wish
    since: int
    sent_at: datetime
    until: int
    code: str


def judge_answers(found: Replay, asked: Iterable[Asked]) -> list[str]:
    """Every contradiction between the responses and what the model follows from the log."""
    by_key: dict[tuple[str, str], list[Asked]] = defaultdict(list)
    for one in asked:
        by_key[one.tenant, one.key].append(one)
    return [
        f"key {key}: {sentence}" for (_, key), attempts in by_key.items() for sentence in _judge_key(found, attempts)
    ]


def _judge_key(found: Replay, attempts: list[Asked]) -> Iterator[str]:
    conflicts = [one for one in attempts if one.code == "operation_conflict"]
    definite = [one for one in attempts if one.code not in INDEFINITE and one.code != "operation_conflict"]
    if not definite:
        return
    if len({one.wish for one in definite}) > 1:
        yield f"two contents were carried out: {[one.wish for one in definite]}"
    if len({one.code for one in definite}) > 1:
        yield f"answered {[one.code for one in definite]}"
    if any(one.wish == definite[0].wish for one in conflicts):
        yield f"the content {definite[0].wish} was carried out, and refused as another"
    first = min(definite, key=lambda one: one.sent_at)
    # Whichever attempt ran: it saw no less than the first one sent, and no more than the last one answered.
    whole = [one for one in attempts if one.wish == first.wish]
    since = min(one.since for one in whole)
    sent_at = min(one.sent_at for one in whole)
    until = min(one.until for one in definite)
    yield from _judge(found, Asked(first.tenant, first.key, first.wish, since, sent_at, until, first.code))


def _judge(found: Replay, asked: Asked) -> Iterator[str]:
    left = found.effects.get((asked.tenant, asked.key), [])
    effects = [event for event in left if event.type == _EFFECTS[asked.wish.verb]]
    refusals = [event for event in left if event.type == "operation.refused"]
    nothing_left = [event for event in left if event.type == "operation.committed"]
    others = [event for event in left if event.type in _EFFECTS.values() and event not in effects]
    if len(effects) + len(refusals) + len(others) + len(nothing_left) > 1:
        yield f"answered {asked.code}, but left {[str(event) for event in left]}"
    if early := [event for event in left if event.version <= asked.since]:
        yield f"{early[0]} was there before it was asked for"
    if asked.code == "ok":
        if effects:
            yield from _judge_effect(found, asked, effects[0])
        else:
            yield f"answered ok to {asked.wish}, but the log has no {_EFFECTS[asked.wish.verb]} of it"
    elif effects or others:
        yield f"answered {asked.code}, but the log has {(effects + others)[0]}"
    elif not (outcomes := nothing_left if asked.code == "noop" else refusals):
        missing = "outcome" if asked.code == "noop" else "refusal"
        yield f"answered {asked.code} to {asked.wish}, but the log has no {missing} of it"
    elif outcomes[0].payload.get("code") != asked.code:
        yield f"answered {asked.code}, but {outcomes[0]} says {outcomes[0].payload.get('code')}"
    else:
        reason = f" ({outcomes[0].payload['reason']})" if outcomes[0].payload.get("reason") else ""
        for sentence in _judge_refusal(found, asked, outcomes[0].version, outcomes[0].instant("judged_at")):
            yield sentence + reason


def _judge_effect(found: Replay, asked: Asked, event: Event) -> Iterator[str]:
    """What was done is what was asked for."""
    wish, payload = asked.wish, event.payload
    if payload["holder_id"] != wish.holder:
        yield f"{event} has the holder {payload['holder_id']!r}, asked for by {wish.holder!r}"
    if wish.verb != "hold":
        if str(payload["reservation_id"]) != wish.reservation:
            yield f"{event} is about {payload['reservation_id']}, asked for {wish.reservation}"
        return
    known = found.at(event.version).resources
    units = {unit for name in wish.resources for unit in known.get(name, frozenset())}
    taken = [units_of(claim["units"]) for claim in payload["claims"]]
    if wish.sku and sorted(map(len, taken)) != [wish.gpus] * wish.count:
        yield f"{event} holds {payload['claims']}, asked for {wish.count} times {wish.gpus} GPUs"
    if wish.resources and units != frozenset().union(*taken):
        yield f"{event} holds {payload['claims']}, asked for {wish.resources}, which are {sorted(units)}"
    judged_at, starts_at, ends_at = event.instant("judged_at"), event.instant("starts_at"), wish.ends_at
    if starts_at != max(wish.starts_at or judged_at, judged_at):
        yield f"{event} starts at {starts_at}, asked for {wish.starts_at or 'now'} at {judged_at}"
    if event.instant_or_none("ends_at") != ends_at:
        yield f"{event} ends at {payload['ends_at']}, asked for {ends_at}"
    promised = judged_at + timedelta(seconds=wish.ttl_seconds)
    promised = promised if ends_at is None else min(promised, ends_at)
    if event.instant("hold_until") != promised:
        yield f"{event} is held until {payload['hold_until']}, promised was {promised}"


def _judge_refusal(found: Replay, asked: Asked, until: int, judged_at: datetime) -> Iterator[str]:
    states = found.between(asked.since, until)
    if asked.wish.verb == "hold":
        gpus = sum(len(units) for units, gpus in _rectangles(states[0], asked.wish) if gpus)
        if asked.code == "quota_exceeded" and _over_at_most(
            states, asked.tenant, gpus or asked.wish.gpus * asked.wish.count
        ):
            return
        if asked.code == "window_invalid" and asked.wish.ends_at is not None and asked.wish.ends_at <= judged_at:
            return
        reasons = {o.code for state in states for o in _objections(state, asked)}
    else:
        reasons = {_answer(state, asked, at) for state in states for at in (asked.sent_at, judged_at)} - {""}
    if asked.code not in reasons:
        yield (
            f"answered {asked.code} to {asked.wish}; between versions {asked.since} and {until} the model would have"
            f" answered {sorted(reasons) or 'ok'}"
        )


def _objections(state: State, asked: Asked) -> list[Outcome]:
    """Why a hold could be refused. A rival whose deadline had passed before this was even sent is no reason."""
    wish, clock = asked.wish, asked.sent_at
    for id_, rival in state.reservations.items():
        if rival.state == "hold" and rival.hold_until <= clock:
            state, _ = reservations.expire(state, id_, clock)
    hold_until = clock + timedelta(seconds=wish.ttl_seconds)
    if wish.ends_at is not None and clock < wish.ends_at:
        hold_until = min(hold_until, wish.ends_at)
    rectangles = _rectangles(state, wish)
    starts_at = wish.starts_at or clock
    command = Hold(asked.tenant, wish.holder, rectangles, starts_at, wish.ends_at, hold_until, wish.resources)
    perhaps = [
        Outcome("resource_busy", f"{owners} may still be there")
        for units, _ in rectangles
        if starts_at <= clock and (owners := state.perhaps_on(units))
    ]
    if not 1 <= wish.ttl_seconds <= HOLD_SECONDS_MAX:
        perhaps.append(Outcome("ttl_out_of_range", f"{wish.ttl_seconds} s"))
    if wish.sku and not _fits(state, wish):
        perhaps.append(Outcome("sku_unavailable", "no nodes with as many free slots"))
    return objections_to_hold(state, command, clock) + perhaps


def _fits(state: State, wish: Wish) -> bool:
    """Whether so many GPUs are certainly free, from now on, on single nodes."""
    taken = {
        unit for _, claim in state.open_claims() if claim.booked or claim.occupied is not False for unit in claim.units
    }
    nodes = [units for name, units in state.resources.items() if name.startswith("node:")]
    in_service = [units for units in nodes if not _gone(state, units)]
    return sum(len(units - taken) // wish.gpus for units in in_service) >= wish.count


def _gone(state: State, units: frozenset[int]) -> bool:
    return any(state.resources[name] == units for name in state.out_of_service)


def _rectangles(state: State, wish: Wish) -> tuple[tuple[frozenset[int], int], ...]:
    units = [(name, state.resources.get(name, frozenset())) for name in wish.resources]
    return tuple((found, len(found) if name.startswith(("node:", "slot:")) else 0) for name, found in units)


def _over_at_most(states: list[State], tenant: str, gpus: int) -> bool:
    """Whether the quota may have been used up, counting what was taken within the span and not what was given back."""
    used = [state.quotas[tenant].used for state in states]
    most = used[0] + sum(max(0, after - before) for before, after in itertools.pairwise(used))
    limit = states[0].quotas[tenant].limit
    return limit is not None and most + gpus > limit


def _answer(state: State, asked: Asked, clock: datetime) -> str:
    """What the model answers without changing anything; empty if it would change something."""
    command = ByHolder(asked.tenant, asked.wish.reservation, asked.wish.holder)
    run = reservations.confirm if asked.wish.verb == "confirm" else reservations.cancel
    after, outcome = run(state, command, clock)
    return outcome.code if after is state else ""
