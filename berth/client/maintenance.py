"""Maintenance windows and the errors about them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from berth.client.errors import Overloaded, Refused
from berth.client.models import Answer


class ClaimInTheWay(Answer):
    """A claim on units of a window, within its time. `resolution`: the least that a commit can do about it."""

    owner: str
    tenant_id: UUID | None = None
    node_id: UUID
    resources: list[str]
    starts_at: datetime
    ends_at: datetime | None = None
    state: str
    resolution: str


class MaintenancePlan(Answer):
    """The claims in the way of a window."""

    conflicts: list[ClaimInTheWay]


class WindowFirmware(Answer):
    """What an update writes where. `targets`: ids of the BMC's firmware inventory, each with `version` afterwards."""

    image_url: str
    sha256: str
    targets: list[str]
    version: str
    restart: str = "auto"


class WindowTask(Answer):
    """What a window runs on each of its nodes, once; `plugin` of the kind `plugin` alone, `firmware` of `firmware` alone."""

    kind: str
    plugin: str | None = None
    timeout_seconds: int
    firmware: WindowFirmware | None = None


class NodeTask(Answer):
    """What became of the task of a window on a node. `evidence`: what the node reported; None in a list of windows."""

    node_id: UUID
    state: str
    begun_at: datetime | None = None
    ended_at: datetime | None = None
    failure: str | None = None
    evidence: str | None = None
    waits_for: str | None = None
    waits_since: datetime | None = None
    waits_until: datetime | None = None


class MaintenanceWindow(Answer):
    """A time in which operators work on nodes or slots. `planned`: slots that an allocation still holds in it.

    `tasks`: what became of its task on each node; none if it runs nothing.
    """

    window_id: UUID
    starts_at: datetime
    ends_at: datetime
    reason: str
    state: str
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    resources: list[str]
    planned: list[str]
    waits_for: str | None = None
    waits_since: datetime | None = None
    waits_until: datetime | None = None
    task: WindowTask | None = None
    tasks: list[NodeTask] = Field(default_factory=list)


class MaintenanceConflict(Refused):
    """Claims in the window refuse it; `extra["conflicts"]` lists them."""

    codes = ("maintenance_conflict",)


class MaintenanceWindowInvalid(Refused):
    """The window is over, reversed, too long or too far away."""

    codes = ("maintenance_window_invalid",)


class MaintenanceTaskInvalid(Refused):
    """The task of the window is not whole, does not fit into the window, or may not run on parts of a node."""

    codes = ("maintenance_task_invalid",)


class MaintenanceTaskUnsupported(Refused):
    """Nodes of the window cannot run its task; `extra["nodes"]` says which and why."""

    codes = ("maintenance_task_unsupported",)


class MaintenanceTableFull(Overloaded):
    """As many maintenance windows are scheduled or active as the deployment allows."""

    codes = ("maintenance_table_full",)
