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


class Resolution(StrEnum):
    """What commit does about a conflict."""

    NOTIFY = "notify"
    """The tenant of the allocation is notified; its units are claimed when its claim ends."""
    MOVE = "move"
    """The reservation's claim is moved to equal units, if some are free."""
    REFUSE = "refuse"
    """The window is refused."""
