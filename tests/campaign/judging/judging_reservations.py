"""What must hold of reservations as clients and the subscriber saw them (P1, P5). Pure: a history in, violations out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

from tests.campaign.history import Attempt, History, HoldSight, Outcome
from tests.campaign.judging.judging_clients import Violation

EARLY_SECONDS_MAX = 0.3
"""Clocks of clients and of the database are one machine's, but are not read at one instant."""
ENDED = frozenset({"cancelled", "expired", "released", "consumed"})
GONE = frozenset({"retired", "not_found"})
"""What is shown of these is judged elsewhere."""


def judge_reservations(history: History) -> list[Violation]:
    """Every check on reservations."""
    checks = (check_expiry, check_confirmed, check_not_both, check_forward, check_judged)
    return [violation for check in checks for violation in check(history)]


def check_expiry(history: History) -> Iterator[Violation]:
    """No response said that a hold had expired before its promised time was up: neither by the server's clock, nor by the
    client's own since its request. None was confirmed after its time.
    """
    asked = _first_asked(history)
    for id_, sights in _by_reservation(history).items():
        promised = max((s.expires_at for s in sights if s.status == "hold" and s.expires_at), default=None)
        held_at = next((s.held_at for s in sights if s.held_at), None)
        if promised is None or held_at is None:
            continue
        for sight in sights:
            if sight.status == "expired" and sight.ended_at and sight.ended_at < promised:
                yield Violation("late, never early", f"{id_} expired at {sight.ended_at}, promised until {promised}")
                break
            waited = sight.told - asked.get(id_, float("-inf"))
            if sight.status == "expired" and waited + EARLY_SECONDS_MAX < (promised - held_at).total_seconds():
                yield Violation("late, never early", f"{id_} was expired {waited:.2f} s after it was asked for")
                break
            if sight.confirmed_at and sight.confirmed_at >= promised:
                yield Violation("late, never early", f"{id_} was confirmed at {sight.confirmed_at}, after {promised}")
                break


def check_confirmed(history: History) -> Iterator[Violation]:
    """A reservation reported confirmed stays so until a request cancels it or its window is over."""
    given_back, seen = _first_given_back(history), _by_reservation(history)
    for attempt in history.attempts:
        if attempt.kind != "confirm" or attempt.outcome is not Outcome.DONE or attempt.reservation_id is None:
            continue
        id_ = attempt.reservation_id
        for sight in seen.get(id_, ()):
            window_over = (
                sight.status == "released" and sight.ends_at and sight.ended_at and sight.ended_at >= sight.ends_at
            )
            kept = sight.status in ("confirmed", "consumed") or sight.told > given_back.get(id_, float("inf"))
            kept = kept or sight.failure is not None  # it could not start by itself
            if sight.asked > attempt.ended and not kept and not window_over:
                yield Violation("confirmed stays", f"{id_} was confirmed and then read as {sight.status}")
                break


def check_not_both(history: History) -> Iterator[Violation]:
    """Of confirm and expiry only one happens, in responses and in the stream."""
    told: dict[str, set[str]] = defaultdict(set)
    for event in history.events().values():
        if event.type in ("reservation.confirmed", "reservation.expired"):
            told[str(event.data.get("reservation_id"))].add(event.type.removeprefix("reservation."))
    for id_, sights in _by_reservation(history).items():
        told[str(id_)] |= {sight.status for sight in sights} & {"confirmed", "expired"}
    for name, ends in told.items():
        if len(ends) > 1:
            yield Violation("one end", f"{name} ended as {sorted(ends)}")


def check_forward(history: History) -> Iterator[Violation]:
    """What one read showed, a later one does not take back."""
    for id_, sights in _by_reservation(history).items():
        for sight in sights:
            newer = [one for one in sights if one.told < sight.asked and one.row_version > sight.row_version]
            ended = [one for one in sights if one.told < sight.asked and one.status in ENDED]
            if newer or any(one.status != sight.status for one in ended):
                yield Violation("only forward", f"{id_} went back to {sight.status} ({sight.row_version})")
                break


def _is_held_up(history: History, since: datetime, until: datetime) -> bool:
    return any(
        injury.target == "postgres"
        and history.moment(injury.began) < until
        and (injury.ended is None or since < history.moment(injury.ended))
        for injury in history.injuries
    )


def check_judged(history: History) -> Iterator[Violation]:
    """A confirm is judged by a clock that was read after its locks: its event is written at once, unless a fault holds up
    PostgreSQL meanwhile, such as a lock of a whole table.
    """
    for event in history.events().values():
        if event.type == "reservation.confirmed" and event.at is not None:
            judged_at = datetime.fromisoformat(event.data["judged_at"])
            waited = (event.at - judged_at).total_seconds()
            if waited > EARLY_SECONDS_MAX and not _is_held_up(history, judged_at, event.at):
                yield Violation(
                    "late, never early", f"version {event.version} was judged {waited:.2f} s before it happened"
                )


def _by_reservation(history: History) -> dict[UUID, list[HoldSight]]:
    """Sights of each, in the order in which they were asked for."""
    found: dict[UUID, list[HoldSight]] = defaultdict(list)
    for sight in sorted(history.holds, key=lambda sight: sight.asked):
        if sight.status not in GONE:
            found[sight.reservation_id].append(sight)
    return found


def _first_asked(history: History) -> dict[UUID, float]:
    """When each was first asked for. A repetition of the key asks for the same."""
    keys = {a.key: a.reservation_id for a in history.attempts if a.kind == "hold" and a.reservation_id}
    return _first([a for a in history.attempts if a.kind == "hold"], keys)


def _first(attempts: list[Attempt], keys: dict[str, UUID]) -> dict[UUID, float]:
    found: dict[UUID, float] = {}
    for attempt in attempts:
        if attempt.key in keys:
            found[keys[attempt.key]] = min(found.get(keys[attempt.key], float("inf")), attempt.began)
    return found


def _first_given_back(history: History) -> dict[UUID, float]:
    cancels = [a for a in history.attempts if a.kind == "cancel" and a.reservation_id is not None]
    return _first(cancels, {a.key: a.reservation_id for a in cancels if a.reservation_id})
