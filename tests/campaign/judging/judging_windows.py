"""What must hold of windows as clients and the subscriber saw them: nothing begins or ends early, no instant without an owner
at a turn-over, versions of resources, availability, and records that are kept as long as promised. Pure.
"""

from __future__ import annotations

import bisect
from collections import defaultdict, deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tests.campaign.history import Delivery, History, HoldSight, Offer, ResourceSight
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.judging.judging_events import RELEASING, REQUESTED, UPDATED, WAITING
from tests.campaign.judging.judging_rights import FOR_EVER, LIVE, first_given_back

APART = timedelta(seconds=0.3)
"""Clocks of clients and of the database are one machine's, but are not read at one instant."""
OWNED = frozenset({"reserved", "confirmed", "cleanup_blocked"})


def judge_windows(history: History) -> list[Violation]:
    """Every check on windows."""
    checks = (check_beginnings, check_ends, check_owned, check_resource_versions, check_offers, check_kept)
    return [violation for check in checks for violation in check(history)]


def check_beginnings(history: History) -> Iterator[Violation]:
    """Nothing starts before its window, and only what was confirmed starts by itself."""
    starts_at: dict[str, datetime] = {}
    confirmed: set[str] = set()
    for event in _in_order(history):
        id_ = str(event.data.get("reservation_id"))
        if event.type == "reservation.held":
            starts_at[id_] = _moment(event.data["starts_at"])
        elif event.type == "reservation.confirmed":
            confirmed.add(id_)
        elif event.type in (REQUESTED, WAITING) and event.data.get("turned_over") and event.at is not None:
            if id_ in starts_at and event.at < starts_at[id_]:
                yield _early(event, f"reservation {id_} was turned over at {event.at}, before {starts_at[id_]}")
            if event.operation_key is None and id_ not in confirmed:
                yield _early(event, f"reservation {id_} started by itself and had not been confirmed")


def check_ends(history: History) -> Iterator[Violation]:
    """Nothing ends for want of time before its time is up; each owner is warned once at most of each end, and before it."""
    ends_at: dict[str, datetime] = {}
    warned: set[str] = set()
    for event in _in_order(history):
        reservation, allocation = str(event.data.get("reservation_id")), str(event.data.get("allocation_id"))
        if event.type == "reservation.held" and event.data.get("ends_at"):
            ends_at[reservation] = _moment(event.data["ends_at"])
        elif event.type in (REQUESTED, WAITING) and event.data.get("ends_at"):
            ends_at[allocation] = _moment(event.data["ends_at"])
        elif event.type == UPDATED and "ends_at" in event.data["changed"]:
            ends_at[allocation] = _moment(event.data["ends_at"]) if event.data["ends_at"] else FOR_EVER
            warned.discard(allocation)
        elif event.type == "reservation.released":
            judged_at = _moment(event.data["judged_at"])
            if judged_at < ends_at.get(reservation, FOR_EVER):
                yield _early(event, f"reservation {reservation} was released at {judged_at}")
        elif event.type == RELEASING and event.data.get("reason") == "ends_at":
            releasing_at = _moment(event.data["releasing_at"])
            if releasing_at < ends_at.get(allocation, FOR_EVER):
                yield _early(event, f"allocation {allocation} was ended at {releasing_at}")
        elif event.type == "reservation.ending":
            if allocation in warned or _moment(event.data["judged_at"]) >= _moment(event.data["ends_at"]):
                yield Violation(
                    "warned once", f"version {event.version}: allocation {allocation} was warned again, or late"
                )
            warned.add(allocation)


def check_owned(history: History) -> Iterator[Violation]:
    """While a response says that a resource is owned, no read shows it free: neither while its window lasts, nor while it is
    turned over.
    """
    free: dict[str, list[ResourceSight]] = defaultdict(list)
    for sight in sorted(history.resources, key=lambda sight: sight.asked):
        if sight.state not in OWNED:
            free[sight.name].append(sight)
    ends = _known_ends(history)
    for id_, live in _live(history).items():
        begins = (live[0].starts_at or live[0].held_at or FOR_EVER) + APART
        since = max(min(sight.told for sight in live), begins.timestamp() - history.offset_seconds)
        until = ends[id_].timestamp() - history.offset_seconds
        for name in live[0].resources:
            sights = free.get(name, [])
            first = bisect.bisect_right(sights, since, key=lambda sight: sight.asked)
            last = bisect.bisect_left(sights, until, key=lambda sight: sight.asked)
            for sight in sights[first:last]:
                if sight.told < until:
                    yield Violation("no gap", f"{name} was read as {sight.state}, while it was {id_}'s")
                    return


def _live(history: History) -> dict[UUID, list[HoldSight]]:
    """Sights of reservations that were live and never moved."""
    found: dict[UUID, list[HoldSight]] = defaultdict(list)
    for sight in history.holds:
        if sight.status in LIVE:
            found[sight.reservation_id].append(sight)
    gone = {
        str(event.data.get("reservation_id"))
        for event in history.events().values()
        if event.type in ("reservation.moved", "reservation.failed")
    }
    return {id_: sights for id_, sights in found.items() if str(id_) not in gone}


def _known_ends(history: History) -> dict[UUID, datetime]:
    """Until when each reservation surely owns its resources, by the servers' clock."""
    given_back, found = first_given_back(history), {}
    for id_, live in _live(history).items():
        promised = [live[0].ends_at or FOR_EVER]
        if all(sight.status == "hold" for sight in live):
            promised += [max(sight.expires_at for sight in live if sight.expires_at)]
        if id_ in given_back:
            promised.append(history.moment(given_back[id_]))
        found[id_] = min(promised) - APART
    return found


def check_resource_versions(history: History) -> Iterator[Violation]:
    """A resource's version never goes back, and grows with each change of its state."""
    by_name: dict[str, list[ResourceSight]] = defaultdict(list)
    for sight in sorted(history.resources, key=lambda sight: sight.asked):
        by_name[sight.name].append(sight)
    for name, sights in by_name.items():
        states: dict[int, str] = {}
        known = deque(sorted(sights, key=lambda sight: sight.told))
        newest = 0
        for sight in sights:
            while known[0].told < sight.asked:
                newest = max(newest, known.popleft().row_version)
            if newest > sight.row_version:
                yield Violation("only forward", f"{name} went from version {newest} to {sight.row_version}")
                break
            state = states.setdefault(sight.row_version, sight.state)
            if state != sight.state:
                yield Violation("only forward", f"{name} was {state} and {sight.state} at version {sight.row_version}")
                break


def check_offers(history: History) -> Iterator[Violation]:
    """What availability says of one window does not contradict itself."""
    for offer in history.offers:
        if not _consistent(offer):
            yield Violation("availability", f"{offer}")


def _consistent(offer: Offer) -> bool:
    if not 0 <= offer.largest_now <= offer.free_gpus <= offer.total_gpus:
        return False
    if offer.available is None:  # no window was asked about
        return True
    if offer.gpus is None or offer.count is None or offer.starts_at is None:
        return False
    if offer.available * offer.gpus > offer.free_gpus or (offer.earliest_at is None) != (offer.reason is not None):
        return False
    fits_at_once = offer.available >= offer.count
    return fits_at_once == (offer.earliest_at is not None and offer.earliest_at <= offer.starts_at)


def check_kept(history: History) -> Iterator[Violation]:
    """The record of a reservation can be read until its `retire_after`; afterwards its status is `retired`, for ever."""
    by_id: dict[UUID, list[HoldSight]] = defaultdict(list)
    for sight in sorted(history.holds, key=lambda sight: sight.asked):
        by_id[sight.reservation_id].append(sight)
    for id_, sights in by_id.items():
        kept_until = max((s.retire_after for s in sights if s.retire_after), default=None)
        retired_at = min((s.told for s in sights if s.status == "retired"), default=float("inf"))
        for sight in sights:
            early = (
                kept_until is not None and sight.status == "retired" and history.moment(sight.told) + APART < kept_until
            )
            if sight.status == "not_found" or early or (sight.status != "retired" and sight.asked > retired_at):
                yield Violation("kept", f"{id_} was read as {sight.status}; it is to be kept until {kept_until}")
                break


def _in_order(history: History) -> list[Delivery]:
    events = history.events()
    return [events[version] for version in sorted(events)]


def _early(event: Delivery, sentence: str) -> Violation:
    return Violation("late, never early", f"version {event.version}: {sentence}")


def _moment(text: Any) -> datetime:
    return datetime.fromisoformat(str(text))
