"""Parses events of the log from JetStream messages: CloudEvents 1.0, structured JSON (docs/reference/events.md)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import orjson

from berth.process.json_objects import JsonObject

TYPE_PREFIX = "berth."

PROVISIONING_REQUESTED = "provisioning.requested"
RELEASING_REQUESTED = "provisioning.releasing.requested"
VERB_REQUESTED = "allocation.verb_requested"
TASK_FINISHED = "task.finished"
CONSUMED_TYPES = (PROVISIONING_REQUESTED, RELEASING_REQUESTED, VERB_REQUESTED, TASK_FINISHED)
FILTER_SUBJECTS = [f"berth.events.*.{event_type}" for event_type in CONSUMED_TYPES]


class UnreadableEvent(Exception):
    """The message is no event of a known type and shape."""


@dataclass(frozen=True, slots=True)
class FinishedTask:
    """The task of a `task.finished` event; `notify` is the id of the workflow that waits for it."""

    id: UUID
    type: str
    outcome: str
    notify: str | None
    queued_at: datetime


@dataclass(frozen=True, slots=True)
class ConsumedEvent:
    """The parts of an event that the worker uses. `tenant_id` is None for operators' events; `task` is set for
    `task.finished`.
    """

    id: UUID
    type: str
    occurred_at: datetime
    correlation_id: UUID
    allocation_id: UUID | None
    tenant_id: str | None = None
    task: FinishedTask | None = None

    def age_seconds(self) -> float:
        """Seconds since the event was written, by this machine's clock; for metrics only."""
        return (datetime.now(UTC) - self.occurred_at).total_seconds()


def read_event(body: bytes) -> ConsumedEvent:
    """Parse a message. Raises `UnreadableEvent` with the reason."""
    try:
        document = orjson.loads(body)
        event_type = str(document["type"]).removeprefix(TYPE_PREFIX)
        if event_type not in CONSUMED_TYPES:
            raise UnreadableEvent(f"the worker does not consume events of type {event_type}")
        data = document["data"]
        return ConsumedEvent(
            id=UUID(document["id"]),
            type=event_type,
            occurred_at=datetime.fromisoformat(document["time"]),
            correlation_id=UUID(document["correlationid"]),
            allocation_id=_allocation(event_type, data),
            tenant_id=document.get("tenantid"),
            task=_task(data) if event_type == TASK_FINISHED else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableEvent(f"{type(error).__name__}: {error}") from error


def _allocation(event_type: str, data: JsonObject) -> UUID | None:
    """The allocation's id. Only a task may have none."""
    if event_type == TASK_FINISHED and data["allocation_id"] is None:
        return None
    return UUID(data["allocation_id"])


def _task(data: JsonObject) -> FinishedTask:
    return FinishedTask(
        UUID(data["task_id"]), str(data["type"]), str(data["outcome"]), data["notify"],
        datetime.fromisoformat(data["queued_at"]),
    )  # fmt: skip
