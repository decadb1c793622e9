"""The states that a status query of an operation returns (P12; DESIGN §6). Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

CLOCK_LEEWAY_SECONDS = 60.0
"""How far a client's clock may be off: its time of the first attempt is held against the database's clock."""
CLOCK_LEEWAY_SHARE = 0.1
"""Of the retention window; the leeway is never more."""


class OperationState(StrEnum):
    """The state of an operation. All but `pending` and `retired` are definite."""

    PENDING = "pending"
    COMMITTED = "committed"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    RETIRED = "retired"


DEFINITE_STATES = frozenset({OperationState.COMMITTED, OperationState.REJECTED, OperationState.UNKNOWN})


def leeway_of(retention_seconds: float) -> timedelta:
    """How far clocks may differ, where answers are kept so long."""
    return timedelta(seconds=min(CLOCK_LEEWAY_SECONDS, retention_seconds * CLOCK_LEEWAY_SHARE))


def is_past_horizon(since: datetime, judged_at: datetime, retention_seconds: float) -> bool:
    """Whether an operation begun at `since` may have been done and forgotten by `judged_at`."""
    horizon_seconds = retention_seconds - leeway_of(retention_seconds).total_seconds()
    return (judged_at - since).total_seconds() > horizon_seconds
