"""Events of the log as they come from JetStream: CloudEvents 1.0, structured JSON (docs/events.md)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson

TYPE_PREFIX = "berth."

PROVISIONING_REQUESTED = "provisioning.requested"
RELEASING_REQUESTED = "provisioning.releasing.requested"
TASK_FINISHED = "task.finished"
CONSUMED_TYPES = (PROVISIONING_REQUESTED, RELEASING_REQUESTED, TASK_FINISHED)
FILTER_SUBJECTS = [f"berth.events.*.{event_type}" for event_type in CONSUMED_TYPES]


class UnreadableEvent(Exception):
    """The message is no event of a type and shape known here; it will not become one."""


@dataclass(frozen=True, slots=True)
class ConsumedEvent:
    """What the worker needs of an event. `task_id` and `notify` are those of a finished task."""

    id: UUID
    type: str
    occurred_at: datetime
    allocation_id: UUID | None
    task_id: UUID | None = None
    notify: str | None = None

    def age_seconds(self) -> float:
        """How long ago it was written, by this machine's clock; for measurement only."""
        return (datetime.now(UTC) - self.occurred_at).total_seconds()


def read_event(body: bytes) -> ConsumedEvent:
    """Parse a message. Raises `UnreadableEvent` saying what is wrong."""
    try:
        document = orjson.loads(body)
        event_type = str(document["type"]).removeprefix(TYPE_PREFIX)
        event = UUID(document["id"]), event_type, datetime.fromisoformat(document["time"])
        return _read_payload(*event, document["data"])
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableEvent(f"{type(error).__name__}: {error}") from error


def _read_payload(event_id: UUID, event_type: str, occurred_at: datetime, data: dict[str, Any]) -> ConsumedEvent:
    if event_type in (PROVISIONING_REQUESTED, RELEASING_REQUESTED):
        return ConsumedEvent(event_id, event_type, occurred_at, UUID(data["allocation_id"]))
    if event_type == TASK_FINISHED:
        allocation_id = None if data["allocation_id"] is None else UUID(data["allocation_id"])
        return ConsumedEvent(event_id, event_type, occurred_at, allocation_id, UUID(data["task_id"]), data["notify"])
    raise UnreadableEvent(f"events of type {event_type} are not for the worker")
