"""States of a maintenance window, and what commit does about a conflict. Pure."""

from __future__ import annotations

from enum import StrEnum


class WindowState(StrEnum):
    """Scheduled until `starts_at`, active until `ends_at` or an operator's end; `ended` and `cancelled` are final."""

    SCHEDULED = "scheduled"
    ACTIVE = "active"
    ENDED = "ended"
    CANCELLED = "cancelled"


class OwnerKind(StrEnum):
    """The owner of a claim that is in the way of a window."""

    ALLOCATION = "allocation"
    RESERVATION = "reservation"
    MAINTENANCE = "maintenance"


class TaskKind(StrEnum):
    """What a window runs on each of its nodes."""

    HEALTH_PROBE = "health_probe"
    BURN_IN = "burn_in"
    GPU_RESET = "gpu_reset"
    PLUGIN = "plugin"
    FIRMWARE = "firmware"
    """By the agent of the node's site, through the BMC: the node's own agent has no part in it."""


class WindowTaskState(StrEnum):
    """Of the task of a window on a node. `running`: it is signed, and its result is unknown; the last four are final."""

    WAITING = "waiting"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    NOT_RUN = "not_run"


class Resolution(StrEnum):
    """What commit does about a conflict."""

    NOTIFY = "notify"
    """The tenant of the allocation is notified; its units are claimed when its claim ends."""
    MOVE = "move"
    """The reservation's claim is moved to equal units, if some are free."""
    REFUSE = "refuse"
    """The window is refused."""
