"""Health of nodes as operators see it."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import BaseModel, Field

from node_agent.wire.health import HealthReport
from orchestrator.http.documents import Waits
from orchestrator.http.types.numbers import Count
from orchestrator.nodes.burn_ins.schemas import BurnIn
from orchestrator.nodes.probes.rules import FaultCause


class HealthFault(BaseModel):
    """A value beyond its threshold, and the slots that it takes out of service; none if no slot has this GPU."""

    cause: FaultCause
    subject: str
    found: str
    limit: str
    slots: list[Count]
    count: Count | None = Field(description="the value of a counter, which a return of the slot accepts")


class NodeHealth(BaseModel):
    """How the hardware of a node is, by its last health probe. `waits`: a probe is open."""

    node_id: UUID
    report: HealthReport | None
    reported_at: datetime | None
    faults: list[HealthFault]
    accepted: dict[str, Count] = Field(description="counters as they were when a slot was returned")
    failure: str | None = Field(description="Why the last probe failed; null: it did not")
    next_at: datetime = Field(description="When the next probe is due")
    waits: Waits | None
    burn_in: BurnIn | None = Field(description="The last burn-in that is kept")


class StoredHealthReport(BaseModel):
    """An earlier report, with what was a fault then."""

    id: UUID
    node_id: UUID
    reported_at: datetime
    report: HealthReport
    faults: list[HealthFault]
