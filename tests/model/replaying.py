"""Drives the model by a log: every event must be a transition that the model allows then and requires an event for.

A divergence says at which version, what the run did, and why the model would not have.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.model import allocations, reservations
from tests.model.log import Event, units_of
from tests.model.operations import remember
from tests.model.reservations import ByHolder, Hold, TurnOver
from tests.model.state import AllocationState, Outcome, State

Step = Callable[[State, Event], tuple[State, Outcome]]


@dataclass
class Replay:
    """The model's state after every event, and where the run and the model part."""

    states: list[State]
    versions: list[int] = field(default_factory=lambda: [0])
    divergences: list[str] = field(default_factory=list)
    effects: dict[tuple[str, str], list[Event]] = field(default_factory=dict)
    """What each operation left in the log, by tenant and key."""

    @property
    def state(self) -> State:
        """The model after the last event."""
        return self.states[-1]

    def at(self, version: int) -> State:
        """The model after the event of that version."""
        return self.states[bisect.bisect_right(self.versions, version) - 1]

    def between(self, since: int, until: int) -> list[State]:
        """The states after `since` and after each later event below `until`: what a reader that began at `since` and ended by
        `until` may have seen.
        """
        first = bisect.bisect_right(self.versions, since) - 1
        return self.states[first : max(first + 1, bisect.bisect_left(self.versions, until))]


def replay(events: Iterable[Event], start: State, settled: Iterable[int] = ()) -> Replay:
    """Every event in order. One that the model does not follow is reported, and its effect is left out.

    `settled` are versions after which no command was under way. A hold is charged last in its transaction, after its
    events were written, so that the end that made room for it may have a later version, but none after the next of these.
    """
    found = Replay([start])
    boundaries = deque(sorted(set(settled)))
    owed: dict[str, Event] = {}
    for event in events:
        state = found.state
        while boundaries and event.version > boundaries[0]:
            boundaries.popleft()
            found.divergences += _unpaid(state, owed)
        if event.type in STEPS:
            try:
                after, outcome = STEPS[event.type](state, event)
                if outcome.code == "quota_exceeded" and event.type == "reservation.held":
                    owed.setdefault(event.tenant, event)
                    after, outcome = _held_on_credit(state, event)
                state = after
            except KeyError as missing:
                found.divergences.append(f"{event}: the payload lacks {missing}: {_short(event)}")
            else:
                if outcome.code != "ok":
                    found.divergences.append(
                        f"{event}: the model answers {outcome.code} ({outcome.detail}): {_short(event)}"
                    )
        if event.key and event.tenant:
            found.effects.setdefault((event.tenant, event.key), []).append(event)
            code = str(event.payload.get("code")) if event.type in OUTCOMES else CONCLUDING.get(event.type)
            if code is not None:
                state = remember(state, event.tenant, event.key, None, code)
        found.states.append(state)
        found.versions.append(event.version)
    found.divergences += _unpaid(found.state, owed)
    found.divergences += [
        f"at the end: {name} is consumed, but still holds {len(one.claims)} claims"
        for name, one in found.state.reservations.items()
        if one.state == "consumed" and one.claims
    ]
    return found


def _held_on_credit(state: State, event: Event) -> tuple[State, Outcome]:
    quota = state.quotas[event.tenant]
    unlimited = replace(state, quotas={**state.quotas, event.tenant: replace(quota, limit=None)})
    after, outcome = _held(unlimited, event)
    used = replace(after.quotas[event.tenant], limit=quota.limit)
    return replace(after, quotas={**after.quotas, event.tenant: used}), outcome


def _unpaid(state: State, owed: dict[str, Event]) -> list[str]:
    """Each hold that was beyond its tenant's quota, and that no concurrent end made room for."""
    found = []
    for tenant, event in owed.items():
        quota = state.quotas[tenant]
        if quota.limit is not None and quota.used > quota.limit:
            found.append(f"{event}: beyond the quota: {quota.used} of {quota.limit}: {_short(event)}")
    owed.clear()
    return found


def _held(state: State, event: Event) -> tuple[State, Outcome]:
    payload = event.payload
    rectangles = []
    for claim in payload["claims"]:
        units = units_of(claim["units"])
        rectangles.append((units, 0 if claim["node_id"] is None else len(units)))
    command = Hold(
        event.tenant,
        str(payload["holder_id"]),
        tuple(rectangles),
        event.instant("starts_at"),
        event.instant_or_none("ends_at"),
        event.instant("hold_until"),
    )
    return reservations.hold(state, str(payload["reservation_id"]), command, event.instant("judged_at"))


def _by_holder(event: Event) -> ByHolder:
    return ByHolder(event.tenant, str(event.payload["reservation_id"]), str(event.payload["holder_id"]))


def _confirmed(state: State, event: Event) -> tuple[State, Outcome]:
    return reservations.confirm(state, _by_holder(event), event.instant("judged_at"))


def _cancelled(state: State, event: Event) -> tuple[State, Outcome]:
    return reservations.cancel(state, _by_holder(event), event.instant("judged_at"))


def _expired(state: State, event: Event) -> tuple[State, Outcome]:
    return reservations.expire(state, str(event.payload["reservation_id"]), event.instant("judged_at"))


def _released(state: State, event: Event) -> tuple[State, Outcome]:
    return reservations.release(state, str(event.payload["reservation_id"]), event.instant("judged_at"))


def _consumed(state: State, event: Event) -> tuple[State, Outcome]:
    """Its claims have been turned over before: each with its allocation's `provisioning.requested`."""
    found = state.reservations.get(str(event.payload["reservation_id"]))
    if found is None or found.state != "consumed" or found.claims:
        return state, Outcome("invalid_state", "its claims were not all turned over before")
    unknown = [one for one in event.payload["allocation_ids"] if str(one) not in state.allocations]
    return state, Outcome("ok") if not unknown else Outcome("not_found", f"no allocation {unknown}")


def _requested(state: State, event: Event) -> tuple[State, Outcome]:
    payload = event.payload
    units, allocation = units_of(payload["units"]), str(payload["allocation_id"])
    reservation, turned_over = payload.get("reservation_id"), payload.get("turned_over")
    if turned_over is False:
        return allocations.start(state, allocation)
    if not turned_over:
        command = allocations.Create(
            event.tenant, units, int(payload["gpus"]), event.occurred_at, event.instant_or_none("ends_at")
        )
        return allocations.create(state, allocation, command)
    known = state.reservations.get(str(reservation))
    holder = "" if known is None else known.holder
    waits = event.type == "provisioning.waiting"
    command_ = TurnOver(ByHolder(event.tenant, str(reservation), holder), allocation, units, waits)
    return reservations.turn_over(state, command_, event.occurred_at)


def _moved(state: State, event: Event) -> tuple[State, Outcome]:
    units, to = units_of(event.payload["from"]["units"]), units_of(event.payload["to"]["units"])
    return reservations.move(state, str(event.payload["reservation_id"]), units, to, event.instant("judged_at"))


def _failed(state: State, event: Event) -> tuple[State, Outcome]:
    return reservations.fail(state, str(event.payload["reservation_id"]))


def _updated(state: State, event: Event) -> tuple[State, Outcome]:
    """Name and labels are no part of the model."""
    if "ends_at" not in event.payload["changed"]:
        return state, Outcome("ok")
    ends_at, judged_at = event.instant_or_none("ends_at"), event.instant("judged_at")
    return allocations.change_end(state, str(event.payload["allocation_id"]), ends_at, judged_at)


def _advance(to: AllocationState) -> Step:
    def step(state: State, event: Event) -> tuple[State, Outcome]:
        return allocations.advance(state, str(event.payload["allocation_id"]), to)

    return step


STEPS: dict[str, Step] = {
    "reservation.held": _held,
    "reservation.confirmed": _confirmed,
    "reservation.cancelled": _cancelled,
    "reservation.expired": _expired,
    "reservation.released": _released,
    "reservation.consumed": _consumed,
    "reservation.moved": _moved,
    "reservation.failed": _failed,
    "provisioning.requested": _requested,
    "provisioning.waiting": _requested,
    "provisioning.active": _advance("active"),
    "provisioning.failed": _advance("failed"),
    "provisioning.releasing.requested": _advance("releasing"),
    "provisioning.releasing.completed": _advance("released"),
    "provisioning.release_failed": _advance("release_failed"),
    "allocation.updated": _updated,
}
CONCLUDING = {
    "reservation.held": "ok", "reservation.confirmed": "ok", "reservation.cancelled": "ok", "provisioning.requested": "ok",
    "provisioning.waiting": "ok", "provisioning.releasing.requested": "ok", "allocation.updated": "ok",
    "allocation.verb_requested": "ok", "transaction": "committed",
}  # fmt: skip
"""Events that are the whole effect of the operation whose key they carry, and the code that is stored with the key."""
OUTCOMES = frozenset({"operation.committed", "operation.refused"})
"""Events that say what became of an operation, and nothing else."""


def _short(event: Event) -> str:
    shown: dict[str, Any] = dict(event.payload)
    return ", ".join(f"{name}={value}" for name, value in shown.items())[:400]
