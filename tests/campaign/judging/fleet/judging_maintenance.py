"""What a maintenance window claims has no other owner in its time, in the order of the events. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from tests.campaign.fleet_history import FleetHistory
from tests.campaign.history import Delivery, History, Outcome
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.judging.judging_events import UPDATED
from tests.campaign.judging.judging_rights import SLOTS, Right, Rights

OVER = frozenset({"maintenance.ended", "maintenance.cancelled"})


@dataclass(frozen=True)
class Committed:
    """A window as its commit was acknowledged. `refuses`: it was to be refused while allocations are in its way."""

    units: frozenset[int]
    refuses: bool


def committed_windows(history: History) -> dict[str, Committed]:
    """Windows by id."""
    found = {}
    for attempt in history.attempts:
        if attempt.kind == "commit_window" and attempt.outcome is Outcome.DONE:
            answer, asked = json.loads(attempt.answer), json.loads(attempt.content)
            units = _units_of(answer["resources"], history.fleet)
            found[str(answer["window_id"])] = Committed(units, asked.get("allocations") == "refuse")
    return found


def _units_of(names: list[str], fleet: FleetHistory) -> frozenset[int]:
    units: set[int] = set()
    for name in names:
        kind, node_id, *index = name.split(":")
        first = fleet.first_units.get(UUID(node_id))
        if first is not None:
            units |= {first + int(index[0])} if kind == "slot" else set(range(first, first + SLOTS))
    return frozenset(units)


class MaintainedRights(Rights):
    """Rights of tenants beside the windows that are scheduled or active."""

    def __init__(self, committed: dict[str, Committed]) -> None:
        super().__init__()
        self._committed = committed
        self._windows: dict[str, Right] = {}
        self._ends: dict[str, datetime] = {}

    def take(self, event: Delivery) -> None:
        """What the event says of rights and of windows."""
        window_id = str(event.data.get("window_id"))
        if event.type == "maintenance.scheduled":
            self._schedule(event, window_id)
        elif event.type in OVER:
            self._windows.pop(window_id, None)
        else:
            if event.type == UPDATED:
                owner = f"allocation {event.data.get('allocation_id')}"
                self._ends = {right.owner: right.ends for right in self.live.get(owner, ())}
            super().take(event)

    def _begin(self, event: Delivery, right: Right) -> None:
        """A right that begins covers no instant of a window; one that goes on is not extended into one."""
        before = self._ends.get(right.owner) if event.type == UPDATED else None
        for window_id, window in self._windows.items():
            if right.collides(window) and (before is None or (right.ends > before and window.ends > before)):
                self._say_alone(event, f"{right.owner} was given {sorted(right.units & window.units)} of {window_id}")
        super()._begin(event, right)

    def _schedule(self, event: Delivery, window_id: str) -> None:
        """Allocations may be in the way of a window that notifies them; nothing else may."""
        committed = self._committed.get(window_id)
        if committed is None or event.at is None:
            return
        begins = max(_moment(event.data["starts_at"]), event.at)
        window = Right(f"maintenance {window_id}", committed.units, begins, _moment(event.data["ends_at"]))
        for right in (right for owned in self.live.values() for right in owned):
            in_the_way = right.collides(window)
            if in_the_way and (committed.refuses or not right.owner.startswith("allocation")):
                self._say_alone(event, f"{window.owner} was committed over {right.owner}")
        for other in self._windows.values():
            if other.collides(window):
                self._say_alone(event, f"{window.owner} was committed over {other.owner}")
        self._windows[window_id] = window

    def _say_alone(self, event: Delivery, sentence: str) -> None:
        self._say("maintenance alone", event, sentence)


def check_maintenance(history: History) -> list[Violation]:
    """No right of a tenant covers an instant of a window, except those that the window found and notified."""
    rights, events = MaintainedRights(committed_windows(history)), history.events()
    for version in sorted(events):
        rights.take(events[version])
    return [violation for violation in rights.found if violation.check == "maintenance alone"]


def _moment(text: Any) -> datetime:
    return datetime.fromisoformat(str(text))
