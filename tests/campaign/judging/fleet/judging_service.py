"""Nothing is placed on what is out of service: states of nodes and quarantines of slots in the order of the events. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from tests.campaign.fleet_history import FleetHistory
from tests.campaign.history import Delivery, History
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.judging.judging_events import COMPLETED, FAILED, REQUESTED, WAITING
from tests.campaign.judging.judging_rights import SLOTS, Rights, units_of

IN_SERVICE = "active"
CHANGES = frozenset({"node.cordoned", "node.uncordoned", "node.draining", "node.retired"})


class Service:
    """States of nodes, and the units in quarantine, at one moment of the log. A node without an event is in service."""

    def __init__(self, fleet: FleetHistory) -> None:
        self._fleet = fleet
        self.states: dict[str, str] = {}
        self.out: set[int] = set()

    def take(self, event: Delivery) -> None:
        """What the event says of a node or a slot."""
        node_id = str(event.data.get("node_id"))
        if event.type == "node.registered":
            self.states[node_id] = "registered"
        elif event.type == "node.enrolled":
            self.states[node_id] = event.data["state"]
        elif event.type in CHANGES:
            self.states[node_id] = event.data["to"]
        elif event.type in ("node.slot_quarantined", "node.slot_returned"):
            first = self._fleet.first_units.get(UUID(node_id))
            if first is None:
                return
            unit = first + int(event.data["slot"])
            (self.out.add if event.type == "node.slot_quarantined" else self.out.discard)(unit)

    def why_not(self, node_id: str, units: frozenset[int]) -> str | None:
        """Why nothing may be placed there now; None if it may."""
        state = self.states.get(node_id, IN_SERVICE)
        if state != IN_SERVICE:
            return f"node {node_id} is {state}"
        if units & self.out:
            return f"units {sorted(units & self.out)} are in quarantine"
        return None


def placed_by(event: Delivery) -> Iterator[tuple[str, frozenset[int]]]:
    """The node and the units of each claim that the event places or turns over."""
    if event.type in (REQUESTED, WAITING) and event.data.get("turned_over") is not False and "units" in event.data:
        yield str(event.data.get("node_id")), units_of(event.data["units"])
    elif event.type == "reservation.held":
        for claim in event.data["claims"]:
            if claim.get("node_id"):
                yield str(claim["node_id"]), units_of(claim["units"])
    elif event.type == "reservation.moved":
        yield str(event.data["to"].get("node_id")), units_of(event.data["to"]["units"])


def check_service(history: History) -> Iterator[Violation]:
    """Nothing is placed on what is out of service, from the event that took it out to the one that put it back."""
    service, events = Service(history.fleet), history.events()
    for version in sorted(events):
        event = events[version]
        for node_id, units in placed_by(event):
            reason = service.why_not(node_id, units)
            if reason is not None:
                yield Violation(
                    "placed in service", f"version {version}: {event.type} on {sorted(units)}, and {reason}"
                )
        service.take(event)


def check_emptied(history: History) -> Iterator[Violation]:
    """Where a node is said to be drained, or is retired, neither an allocation nor a reservation is left."""
    rights, there, events = Rights(), dict[str, str](), history.events()
    for version in sorted(events):
        event = events[version]
        rights.take(event)
        allocation = str(event.data.get("allocation_id"))
        if event.type in (REQUESTED, WAITING):
            there[allocation] = str(event.data.get("node_id"))
        elif event.type in (COMPLETED, FAILED):
            # What a failed one left behind is proven gone without another event.
            there.pop(allocation, None)
        elif event.type in ("node.drained", "node.retired"):
            left = sorted(left_on(str(event.data["node_id"]), there, rights, history.fleet))
            if left:
                yield Violation("emptied", f"version {version}: {event.type}, and on it is {', '.join(left)}")


def left_on(node_id: str, there: dict[str, str], rights: Rights, fleet: FleetHistory) -> set[str]:
    """The owners of what is on a node: allocations until their cleanup, reservations while they have a right."""
    found = {f"allocation {allocation}" for allocation, node in there.items() if node == node_id}
    first = fleet.first_units.get(UUID(node_id))
    if first is not None:
        units = frozenset(range(first, first + SLOTS))
        found |= {owner for owner, owned in rights.live.items() if any(right.units & units for right in owned)}
    return found
