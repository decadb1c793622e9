"""P1 over time: no unit has two owners at one instant, present or future, in the responses and in the events. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from tests.campaign.history import RELEASES, Delivery, History, HoldSight, Outcome
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.judging.judging_events import FAILED, RELEASING, REQUESTED, UPDATED, WAITING

SLOTS = 8
LIVE = frozenset({"hold", "confirmed"})
RUNNING = frozenset({"requested", "provisioning", "active"})
FOR_EVER = datetime.max.replace(tzinfo=UTC)
CLOSING = frozenset({"cancelled", "expired", "released", "failed"})


def judge_rights(history: History) -> list[Violation]:
    """Both checks."""
    return [*check_told_rights(history), *check_rights_in_order(history)]


@dataclass(frozen=True)
class KnownRight:
    """A right as a client knew of it: from `since` to `until` by the clients' clock, to the time from `begins` to `ends`."""

    owner: str
    since: float
    until: float
    begins: datetime
    ends: datetime

    def collides(self, other: KnownRight) -> bool:
        """Whether both were known at one moment and cover one instant, and neither became the other."""
        known_at_once = self.since < other.until and other.since < self.until
        return known_at_once and self.begins < other.ends and other.begins < self.ends and self.owner != other.owner


def check_told_rights(history: History) -> Iterator[Violation]:
    """No unit was reported for two owners at one instant: from the first response that named it to the request that ended it."""
    rights: dict[str, list[KnownRight]] = defaultdict(list)
    for names, right in [*_of_reservations(history), *_of_allocations(history)]:
        for name in names:
            rights[name].append(right)
    for name, told in rights.items():
        told.sort(key=lambda right: right.since)
        for n, one in enumerate(told):
            other = next((other for other in told[n + 1 :] if one.collides(other)), None)
            if other is not None:
                yield Violation("one holder", f"{name} was reported for {one.owner} and {other.owner} at once")
                break


def _of_reservations(history: History) -> Iterator[tuple[set[str], KnownRight]]:
    given_back = first_given_back(history)
    by_place: dict[tuple[UUID, tuple[str, ...]], list[HoldSight]] = defaultdict(list)
    for sight in history.holds:
        if sight.status in LIVE and (sight.starts_at or sight.held_at):
            # One that was moved has two places.
            by_place[sight.reservation_id, sight.resources].append(sight)
    for (id_, resources), sights in by_place.items():
        ends = sights[0].ends_at or FOR_EVER
        known_until = min(max(sight.asked for sight in sights), given_back.get(id_, float("inf")))
        if all(sight.status == "hold" for sight in sights):
            # It may be read as alive until a sweeper or a rival comes.
            expiry = max(sight.expires_at for sight in sights if sight.expires_at)
            known_until = min(known_until, expiry.timestamp() - history.offset_seconds)
        begins = sights[0].starts_at or sights[0].held_at
        assert begins is not None, "only such sights are looked at"
        since = min(sight.told for sight in sights)
        if since < known_until:
            yield _slots(resources), KnownRight(str(id_), since, known_until, begins, ends)


def _of_allocations(history: History) -> Iterator[tuple[set[str], KnownRight]]:
    asked_back = {
        attempt.allocation_id: attempt.began
        for attempt in sorted(history.attempts, key=lambda attempt: -attempt.began)
        if attempt.kind in RELEASES and attempt.allocation_id is not None
    }
    changed = {event.allocation_id for event in history.events().values() if event.type == UPDATED}
    for id_, sights in history.by_allocation().items():
        running = [s for s in sights if s.state in RUNNING and s.node in history.nodes and s.requested_at]
        if not running:
            continue
        first = running[0]
        since, until = min(s.told for s in running), max(s.asked for s in running)
        until = min(until, asked_back.get(id_, until))
        assert first.node is not None, "only such sights are looked at"
        assert first.requested_at is not None, "only such sights are looked at"
        names = {f"slot:{history.nodes[first.node]}:{slot}" for slot in first.slots}
        owner = str(first.reservation_id or id_)
        if since < until:
            # Its end may have changed between two reads: the earliest was promised all along.
            shown = running if id_ in changed else [first]
            ends = min(sight.ends_at or FOR_EVER for sight in shown)
            yield names, KnownRight(owner, since, until, first.requested_at, ends)


def first_given_back(history: History) -> dict[UUID, float]:
    """When it was first asked for that a reservation, or an allocation that it became, give something back."""
    of_allocations = allocations_of(history)
    found: dict[UUID, float] = {}
    for attempt in history.attempts:
        id_ = attempt.reservation_id if attempt.kind == "cancel" else None
        if attempt.kind in RELEASES and attempt.allocation_id is not None:
            id_ = of_allocations.get(attempt.allocation_id)
        if id_ is not None:
            found[id_] = min(found.get(id_, float("inf")), attempt.began)
    for sight in [*history.sights, *history.settled.values()]:
        # A failed allocation lost its right without a request.
        if sight.reservation_id is not None and sight.failed_at is not None:
            at = sight.failed_at.timestamp() - history.offset_seconds
            found[sight.reservation_id] = min(found.get(sight.reservation_id, float("inf")), at)
    return found


def allocations_of(history: History) -> dict[UUID, UUID]:
    """The reservation of each allocation that was one."""
    found = {s.allocation_id: s.reservation_id for s in history.sights if s.reservation_id is not None}
    found |= {s.allocation_id: s.reservation_id for s in history.settled.values() if s.reservation_id is not None}
    for attempt in history.attempts:
        taken = attempt.kind == "take" and attempt.outcome is Outcome.DONE
        if taken and attempt.allocation_id is not None and attempt.reservation_id is not None:
            found[attempt.allocation_id] = attempt.reservation_id
    return found


def _slots(names: tuple[str, ...]) -> set[str]:
    """A node is all its slots."""
    found = set()
    for name in names:
        kind, _, id_ = name.partition(":")
        found |= {f"slot:{id_}:{slot}" for slot in range(SLOTS)} if kind == "node" else {name}
    return found


@dataclass(frozen=True)
class Right:
    """A right in the order of the events: whose, to which units, from when to when."""

    owner: str
    units: frozenset[int]
    begins: datetime
    ends: datetime

    def collides(self, other: Right) -> bool:
        """Whether both cover a unit at one instant."""
        return bool(self.units & other.units) and self.begins < other.ends and other.begins < self.ends


class Rights:
    """The rights of one moment of the log; every event takes it to the next."""

    def __init__(self) -> None:
        self.live: dict[str, list[Right]] = {}
        self.found: list[Violation] = []

    def take(self, event: Delivery) -> None:
        """What the event says of rights."""
        reservation = f"reservation {event.data.get('reservation_id')}"
        allocation = f"allocation {event.data.get('allocation_id')}"
        if event.type == "reservation.held":
            begins, ends = _moment(event.data["starts_at"]), _moment(event.data.get("ends_at"), FOR_EVER)
            for claim in event.data["claims"]:
                self._begin(event, Right(reservation, units_of(claim["units"]), begins, ends))
        elif event.type == "reservation.moved":
            self._move(event, reservation, units_of(event.data["from"]["units"]), units_of(event.data["to"]["units"]))
        elif event.type.removeprefix("reservation.") in CLOSING:
            self.live.pop(reservation, None)
        elif event.type in (REQUESTED, WAITING) and "units" in event.data:
            self._requested(event, reservation, allocation)
        elif event.type in (RELEASING, FAILED):
            self.live.pop(allocation, None)
        elif event.type == UPDATED and "ends_at" in event.data["changed"]:
            begins, ends = _moment(event.data["judged_at"]), _moment(event.data["ends_at"], FOR_EVER)
            for right in self.live.pop(allocation, []):
                self._begin(event, replace(right, begins=begins, ends=ends))

    def _requested(self, event: Delivery, reservation: str, allocation: str) -> None:
        units, turned_over = units_of(event.data["units"]), event.data.get("turned_over")
        if turned_over:
            # No instant without an owner: the right is the reservation's own, and changes nothing but its name.
            held = self._taken_from(reservation, units)
            if held is None:
                self._say("no gap", event, f"{allocation} was given {sorted(units)}, which {reservation} did not hold")
                return
            self.live[allocation] = [replace(held, owner=allocation)]
        elif turned_over is None:
            assert event.at is not None, "events have a time"
            self._begin(event, Right(allocation, units, event.at, _moment(event.data.get("ends_at"), FOR_EVER)))
        elif not any(right.units == units for right in self.live.get(allocation, ())):
            self._say("no gap", event, f"{allocation} starts on {sorted(units)}, to which it has no right")

    def _move(self, event: Delivery, owner: str, units: frozenset[int], to: frozenset[int]) -> None:
        held = self._taken_from(owner, units)
        if held is None:
            self._say("no gap", event, f"{owner} was moved from {sorted(units)}, which it did not hold")
        else:
            self._begin(event, replace(held, units=to))

    def _taken_from(self, owner: str, units: frozenset[int]) -> Right | None:
        held = next((right for right in self.live.get(owner, ()) if right.units == units), None)
        if held is not None:
            self.live[owner].remove(held)
        return held

    def _begin(self, event: Delivery, right: Right) -> None:
        rival = next((one for some in self.live.values() for one in some if one.collides(right)), None)
        if rival is not None:
            self._say("one holder", event, f"{right.owner} was given {sorted(right.units)}, which are {rival.owner}'s")
        self.live.setdefault(right.owner, []).append(right)

    def _say(self, check: str, event: Delivery, sentence: str) -> None:
        self.found.append(Violation(check, f"version {event.version}: {sentence}"))


def check_rights_in_order(history: History) -> list[Violation]:
    """In the order of the events, no right that begins overlaps another, and what is turned over belonged to the reservation
    it is taken from.
    """
    rights, events = Rights(), history.events()
    for version in sorted(events):
        rights.take(events[version])
    return rights.found


def units_of(ranges: Any) -> frozenset[int]:
    """The units of `[[first, last_exclusive], ...]`."""
    return frozenset(unit for first, last in ranges for unit in range(int(first), int(last)))


def _moment(text: Any, otherwise: datetime | None = None) -> datetime:
    if text is None and otherwise is not None:
        return otherwise
    return datetime.fromisoformat(str(text))
