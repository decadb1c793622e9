"""Health of nodes' hardware."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from berth.client.models import Answer, Waits


class HealthFault(Answer):
    """A value beyond its threshold, and the slots that it takes out of service; none if no slot has this GPU."""

    cause: str
    subject: str
    found: str
    limit: str
    slots: list[int]
    count: int | None = None


class NodeHealth(Answer):
    """How the hardware of a node is, by its last health probe. `waits`: a probe is open."""

    node_id: UUID
    report: dict[str, Any] | None = None
    reported_at: datetime | None = None
    faults: list[HealthFault]
    accepted: dict[str, int] = Field(default_factory=dict)
    failure: str | None = None
    next_at: datetime
    waits: Waits | None = None


class HealthReport(Answer):
    """An earlier report, with what was a fault then."""

    id: UUID
    node_id: UUID
    reported_at: datetime
    report: dict[str, Any]
    faults: list[HealthFault]
