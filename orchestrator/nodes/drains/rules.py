"""Decisions about drains. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.problems import Invalid

DEADLINE_MAX: Final = timedelta(days=366)
REMAINING_MAX: Final = 100
"""Claims that a drain lists."""
MOVES_MAX: Final = 500
"""Claims of reservations that one drain considers for a move, the oldest first. Another order considers the next ones."""


class AtDeadline(StrEnum):
    """What happens at the deadline of a drain with allocations on the node."""

    STAY = "stay"
    """They stay, and the drain is announced as overdue."""
    RELEASE = "release"
    """The drain is announced as overdue, and they are released as at their `ends_at`."""


@dataclass(frozen=True, slots=True)
class DrainOrder:
    """What an operator orders. No deadline: the drain waits until the last claim ends."""

    deadline: datetime | None
    at_deadline: AtDeadline
    reason: str | None

    @property
    def is_empty(self) -> bool:
        """Whether a repetition orders nothing else."""
        return self == DrainOrder(None, AtDeadline.STAY, None)

    def require_possible(self, now: datetime) -> None:
        """Raise `Invalid` if the deadline is over, too far away, or missing although allocations are to be released at it."""
        if self.deadline is None:
            if self.at_deadline is not AtDeadline.STAY:
                raise _invalid("at_deadline", "at_deadline needs a deadline")
        elif not now < self.deadline <= now + DEADLINE_MAX:
            raise _invalid("deadline", f"deadline must lie within the next {DEADLINE_MAX.days} days")


def _invalid(member: str, message: str) -> Invalid:
    return Invalid(message, errors=[{"field": member, "message": message}])


@dataclass(frozen=True, slots=True)
class Drain:
    """The drain of a node that is draining. `waits_until` is its deadline until it is announced as overdue."""

    begun_at: datetime
    begun_by: str
    reason: str | None
    deadline: datetime | None
    at_deadline: AtDeadline
    overdue_at: datetime | None
    drained_at: datetime | None
    waits_for: str | None
    waits_since: datetime | None
    waits_until: datetime | None

    @property
    def order(self) -> DrainOrder:
        """What was ordered."""
        return DrainOrder(self.deadline, self.at_deadline, self.reason)

    def described(self) -> JsonObject:
        """Its order as events have it."""
        deadline = None if self.deadline is None else self.deadline.isoformat()
        return {"deadline": deadline, "at_deadline": self.at_deadline.value, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Remaining:
    """A claim on a draining node, of an allocation or a reservation."""

    owner: str
    tenant_id: UUID
    state: str
    starts_at: datetime
    ends_at: datetime | None
