"""What the nodes are in the end, and what a retired one was given. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from uuid import UUID

from node_agent.protocol import TaskBody
from orchestrator.tasks.store.tasks import NOT_BEFORE_ALLOWANCE_SECONDS
from tests.campaign.fleet_history import STATE_KINDS
from tests.campaign.history import History, Outcome
from tests.campaign.judging.fleet.judging_service import Service
from tests.campaign.judging.judging_clients import Violation

STORED = {
    "enrolling": "registered", "discovered": "active", "maintenance": "active", "burn_in": "active", "quarantined": "active",
}  # fmt: skip
"""The stored state of each that is derived."""
BACKDATED = timedelta(seconds=NOT_BEFORE_ALLOWANCE_SECONDS)
"""A task is valid from so long before its signature."""


def stored(state: str) -> str:
    """The state that operators gave a node that is shown so."""
    return STORED.get(state, state)


def check_states(history: History) -> Iterator[Violation]:
    """Every node is in the end as the last event, and as the last acknowledged operation, made it."""
    service, events = Service(history.fleet), history.events()
    for version in sorted(events):
        service.take(events[version])
    acknowledged = _acknowledged(history)
    for node_id, state in history.fleet.states.items():
        by_events = service.states.get(str(node_id))
        if by_events is not None and by_events != stored(state):
            yield Violation("node state", f"{node_id} is {state} in the end, and {by_events} by its events")
        by_answers = acknowledged.get(node_id)
        # The first enrolment follows the answer.
        enrolled = by_answers == "registered" and stored(state) == "active"
        if by_answers is not None and by_answers != stored(state) and not enrolled:
            yield Violation("node state", f"{node_id} is {state} in the end, and was acknowledged to be {by_answers}")


def _acknowledged(history: History) -> dict[UUID, str]:
    """By node, the state that the response to the newest key shows; an operator writes one after the other."""
    found: dict[UUID, str] = {}
    for attempts in sorted(history.by_key().values(), key=lambda attempts: attempts[0].began):
        done = [attempt for attempt in attempts if attempt.kind in STATE_KINDS and attempt.outcome is Outcome.DONE]
        if done:
            node = json.loads(done[0].answer)
            found[UUID(str(node["id"]))] = stored(node["state"])
    return found


def check_retired(history: History, bodies: Iterable[TaskBody]) -> Iterator[Violation]:
    """A node took no task that was signed after its retirement."""
    retired: dict[str, datetime] = {
        str(event.data["node_id"]): event.at
        for event in history.events().values()
        if event.type == "node.retired" and event.at is not None
    }
    for body in bodies:
        at = retired.get(str(body.node_id))
        if at is not None and body.not_before + BACKDATED > at:
            yield Violation(
                "retired, no task", f"{body.node_id} was retired at {at} and took {body.type} {body.task_id}"
            )
