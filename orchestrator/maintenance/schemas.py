"""Maintenance windows in requests and responses."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, FailFast, Field

from orchestrator.http.fields import Request, Sentence
from orchestrator.http.paging import PageQuery
from orchestrator.http.types.moments import Moment
from orchestrator.maintenance.rules import NODES_MAX
from orchestrator.reservations.schemas import ResourceId

State = Literal["scheduled", "active", "ended", "cancelled"]
Resources = Annotated[list[ResourceId], Field(min_length=1, max_length=NODES_MAX), FailFast()]


class CommitMaintenance(Request):
    """A maintenance window to commit, and what happens to the claims in its way."""

    resources: Resources = Field(description="nodes (`node:<id>`) and slots (`slot:<node id>:<index>`)")
    starts_at: Moment = Field(description="a past time: at once")
    ends_at: Moment
    reason: Sentence = Field(description="shown to the tenants that are notified")
    allocations: Literal["notify", "refuse"] = Field(
        "refuse", description="`notify`: their tenants get an event, and their units are claimed when their claims end"
    )
    reservations: Literal["move", "refuse"] = Field(
        "refuse", description="`move`: claims of reservations of a SKU are moved to equal units, if enough are free"
    )


class PlanQuery(BaseModel):
    """A maintenance window to plan."""

    model_config = ConfigDict(extra="forbid")

    resources: Resources = Field(description="nodes and slots, as of a commit")
    starts_at: Moment
    ends_at: Moment


class MaintenanceConflict(BaseModel):
    """A claim on units of the window, within its time."""

    owner: str = Field(description="`allocations/<id>`, `reservations/<id>` or `maintenance/<id>`")
    tenant_id: UUID | None
    node_id: UUID
    resources: list[str] = Field(description="those of its slots that the window names")
    starts_at: datetime
    ends_at: datetime | None = Field(description="null: without an end")
    state: str
    resolution: Literal["notify", "move", "refuse"] = Field(description="the least that a commit can do about it")


class MaintenancePlan(BaseModel):
    """The claims in the way of a window, at most 500."""

    conflicts: list[MaintenanceConflict]


class MaintenanceWindow(BaseModel):
    """A time in which operators work on nodes or slots."""

    window_id: UUID
    starts_at: datetime
    ends_at: datetime
    reason: str
    state: State
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    resources: list[str]
    planned: list[str] = Field(description="slots that an allocation holds in the window; claimed when its claim ends")
    waits_for: Literal["start", "end"] | None
    waits_since: datetime | None
    waits_until: datetime | None


class MaintenanceQuery(PageQuery):
    """Which windows: all, or those in a state."""

    state: State | None = None
