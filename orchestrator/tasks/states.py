"""The states of a node task (DESIGN §9). Pure."""

from __future__ import annotations

from enum import StrEnum


class TaskState(StrEnum):
    """The state of a node task (DESIGN §9)."""

    QUEUED = "queued"
    DISPATCHED = "dispatched"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"


LIVE_TASK_STATES = frozenset({TaskState.QUEUED, TaskState.DISPATCHED})
