"""What must hold of the events as the campaign's own subscriber got them. Pure."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from uuid import UUID

from tests.campaign.history import Delivery, History
from tests.campaign.judging.judging_clients import Violation

REQUESTED, ACTIVE, FAILED = "provisioning.requested", "provisioning.active", "provisioning.failed"
WAITING = "provisioning.waiting"
RELEASING = "provisioning.releasing.requested"
UPDATED = "allocation.updated"
COMPLETED, RELEASE_FAILED = "provisioning.releasing.completed", "provisioning.release_failed"

PATHS: dict[str | None, frozenset[str]] = {
    None: frozenset({REQUESTED, WAITING}),
    WAITING: frozenset({REQUESTED, FAILED, RELEASING}),  # for units that may still be occupied
    REQUESTED: frozenset({ACTIVE, FAILED, RELEASING}),
    ACTIVE: frozenset({RELEASING}),
    RELEASING: frozenset({RELEASING, COMPLETED, RELEASE_FAILED}),
    RELEASE_FAILED: frozenset({RELEASING}),
    COMPLETED: frozenset(),
    FAILED: frozenset({RELEASING}),  # an operator begins the cleanup anew; it stays failed
}
ENDS = {"released": COMPLETED, "failed": FAILED, "release_failed": RELEASE_FAILED}


def judge_events(history: History) -> list[Violation]:
    """Every check on the stream."""
    checks = (check_order, check_paths, check_reuse)
    return [violation for check in checks for violation in check(history)]


def check_order(history: History) -> Iterator[Violation]:
    """First occurrences come in version order without a gap, from 1; each version is one event, at its sequence."""
    expected = 1
    ids: dict[str, int] = {}
    known: dict[int, str] = {}
    for delivery in history.deliveries:
        version = delivery.version
        if delivery.sequence != version:
            yield Violation("sequence is version", f"version {version} lies at sequence {delivery.sequence}")
            return
        if known.setdefault(version, delivery.event_id) != delivery.event_id:
            yield Violation("one event a version", f"version {version} is {known[version]} and {delivery.event_id}")
        if ids.setdefault(delivery.event_id, version) != version:
            yield Violation(
                "exactly once", f"event {delivery.event_id} is version {ids[delivery.event_id]} and {version}"
            )
        if version > expected:
            yield Violation("gapless", f"version {version} came where {expected} was due")
            return
        expected = max(expected, version + 1)


def check_paths(history: History) -> Iterator[Violation]:
    """In version order the events of an allocation are a legal path with rising fences, and end as it ended."""
    fates: dict[UUID, str | None] = {}
    fences: dict[UUID, int] = {}
    failed: set[UUID] = set()
    for delivery in _of_allocations(history):
        allocation_id = delivery.allocation_id
        assert allocation_id is not None, "only events of allocations are looked at"
        before = fates.get(allocation_id)
        if delivery.type not in PATHS[before] and not (allocation_id in failed and delivery.type == RELEASING):
            yield Violation(
                "legal path", f"{allocation_id}: {delivery.type} (version {delivery.version}) after {before}"
            )
        fence = int(delivery.data.get("fence", 0))
        if fence < fences.get(allocation_id, 0):
            yield Violation(
                "rising fences", f"{allocation_id}: fence {fence} (version {delivery.version}) after a newer"
            )
        if delivery.type == FAILED:
            failed.add(allocation_id)
        fates[allocation_id], fences[allocation_id] = delivery.type, max(fence, fences.get(allocation_id, 0))
    for allocation_id, sight in history.settled.items():
        wanted = ENDS.get(sight.state or "")
        if wanted is None or fates.get(allocation_id) == wanted or (wanted == FAILED and allocation_id in failed):
            continue
        yield Violation(
            "event published", f"{allocation_id} is {sight.state}, its last event {fates.get(allocation_id)}"
        )


def check_reuse(history: History) -> Iterator[Violation]:
    """Nothing was placed on a slot, in the order of the events, before the last one on it was proven gone."""
    spans = _spans(history)
    by_slot: dict[tuple[str, int], list[tuple[int, float, UUID]]] = defaultdict(list)
    for allocation_id, places in _places(history).items():
        if allocation_id in spans:
            for place in places:
                by_slot[place].append((*spans[allocation_id], allocation_id))
    for (node, slot), placed_there in by_slot.items():
        placed_there.sort()
        for one, next_ in itertools.pairwise(placed_there):
            if next_[0] < one[1]:
                yield Violation(
                    "clean before reuse",
                    f"{node} slot {slot}: {next_[2]} placed at version {next_[0]}, {one[2]} gone at {one[1]:g}",
                )


def _spans(history: History) -> dict[UUID, tuple[int, float]]:
    """From which version to which an allocation was on its slots. A failed one at least until it failed."""
    spans: dict[UUID, tuple[int, float]] = {}
    for delivery in _of_allocations(history):
        allocation_id = delivery.allocation_id
        assert allocation_id is not None, "only events of allocations are looked at"
        if delivery.type == REQUESTED:
            spans[allocation_id] = (delivery.version, float("inf"))
        elif delivery.type in (COMPLETED, FAILED) and allocation_id in spans:
            spans[allocation_id] = (spans[allocation_id][0], delivery.version)
    return spans


def _places(history: History) -> dict[UUID, set[tuple[str, int]]]:
    """Node and slot, or unit, of each allocation: as clients were shown them, and as the events say."""
    places: dict[UUID, set[tuple[str, int]]] = defaultdict(set)
    for allocation_id, sights in history.by_allocation().items():
        placed = next((sight for sight in sights if sight.node is not None), None)
        if placed is not None:
            places[allocation_id] |= {(placed.node or "", slot) for slot in placed.slots}
    for delivery in _of_allocations(history):
        if delivery.type == REQUESTED and delivery.allocation_id is not None:
            units = (unit for first, last in delivery.data.get("units", ()) for unit in range(first, last))
            places[delivery.allocation_id] |= {("unit", unit) for unit in units}
    return places


def _of_allocations(history: History) -> list[Delivery]:
    events = history.events()
    return [events[version] for version in sorted(events) if events[version].type in PATHS]
