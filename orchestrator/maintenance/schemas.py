"""Maintenance windows in requests and responses."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, FailFast, Field

from node_agent.wire.firmware import IMAGE_URL, TARGETS_MAX, URL_LENGTH_MAX, FirmwareOrder
from node_agent.wire.maintenance import PLUGIN_NAME
from orchestrator.http.fields import UNSHOWN, WHOLE, Request, Sentence
from orchestrator.http.paging import PageQuery
from orchestrator.http.types.moments import Moment
from orchestrator.http.types.numbers import Count
from orchestrator.maintenance.rules import NODES_MAX
from orchestrator.maintenance.states import TaskKind, WindowTaskState
from orchestrator.maintenance.window_tasks import SECONDS, SECONDS_MAX, WantedTask
from orchestrator.reservations.schemas import ResourceId

State = Literal["scheduled", "active", "ended", "cancelled"]
Resources = Annotated[list[ResourceId], Field(min_length=1, max_length=NODES_MAX), FailFast()]


FirmwareName = Annotated[str, Field(min_length=1, max_length=200, pattern=rf"^[^\x00-\x1f{UNSHOWN}]*$")]


class FirmwareImage(Request):
    """What is written where, through the BMC of each node, and which version it has afterwards."""

    image_url: Annotated[str, Field(max_length=URL_LENGTH_MAX, pattern=IMAGE_URL)] = Field(
        description="where the site's agent fetches the image; at most 512 MiB"
    )
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    targets: Annotated[list[FirmwareName], Field(min_length=1, max_length=TARGETS_MAX), FailFast()] = Field(
        description="ids of entries of the BMC's firmware inventory"
    )
    version: FirmwareName = Field(description="what the BMC must state of each target afterwards, byte for byte")
    restart: Literal["auto", "host", "bmc"] = Field(
        "auto", description="what is restarted after the update; `auto`: what the BMC's task asks for"
    )


class TaskOrder(Request):
    """What a window runs on each of its nodes, once, as soon as it holds all of its units there."""

    kind: Literal["health_probe", "burn_in", "gpu_reset", "plugin", "firmware"]
    plugin: Annotated[str, Field(pattern=PLUGIN_NAME)] | None = Field(
        None, description="of the kind `plugin`: the file in the folder of maintenance plugins of each node's agent"
    )
    firmware: FirmwareImage | None = Field(None, description="of the kind `firmware`: the image and its targets")
    timeout_seconds: Annotated[int, Field(ge=1, le=SECONDS_MAX), WHOLE] | None = Field(
        None,
        description="how long a node has; default: health_probe 600, burn_in 3600, gpu_reset 300, plugin 1800, firmware 3600",
    )

    def wanted(self) -> WantedTask:
        """The task that it orders."""
        kind = TaskKind(self.kind)
        order = None if self.firmware is None else FirmwareOrder.model_validate(self.firmware.model_dump())
        return WantedTask(kind, self.plugin, self.timeout_seconds or SECONDS[kind], order)


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
    task: TaskOrder | None = Field(None, description="what the window runs on each of its nodes; null: nothing")


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


class OrderedFirmware(BaseModel):
    """What an update writes where."""

    image_url: str
    sha256: str
    targets: list[str]
    version: str
    restart: Literal["auto", "host", "bmc"]


class OrderedTask(BaseModel):
    """What a window runs on each of its nodes."""

    kind: TaskKind
    plugin: str | None
    timeout_seconds: Count
    firmware: OrderedFirmware | None = None


class NodeTask(BaseModel):
    """What became of the task of a window on a node."""

    node_id: UUID
    state: WindowTaskState
    begun_at: datetime | None = Field(description="when it was signed; null: it was not")
    ended_at: datetime | None
    failure: str | None = Field(description="why it did not complete: a code, and what was found")
    evidence: str | None = Field(description="what the node reported; null in a list of windows")
    waits_for: Literal["units", "node"] | None
    waits_since: datetime | None
    waits_until: datetime | None


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
    task: OrderedTask | None
    tasks: list[NodeTask] = Field(description="one of each node; empty without a task")


class MaintenanceQuery(PageQuery):
    """Which windows: all, or those in a state."""

    state: State | None = None
