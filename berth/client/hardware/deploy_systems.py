"""Deploy systems of bare-metal nodes: permissions and tasks."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from berth.client.errors import Forbidden, Refused, Unauthenticated
from berth.client.models import Answer, Waits
from berth.process.json_objects import JsonObject


class DeploySystem(Answer):
    """A permission to start a deploy system. `machine`: what the last inspection found; None: nothing."""

    id: UUID
    node_id: UUID
    deploy_epoch: int
    state: str
    smbios_uuid: UUID
    macs: list[str]
    tpm_required: bool
    expires_at: datetime
    used_at: datetime | None = None
    serial: str | None = None
    not_after: datetime | None = None
    hello_at: datetime | None = None
    refusal: str | None = None
    machine: JsonObject | None = None


class PermittedDeploySystem(DeploySystem):
    """A new permission; `medium` is the configuration on its medium, shown once."""

    medium: str


class DeployTask(Answer):
    """A task of a deploy system; `outcome` None: it is open."""

    id: UUID
    node_id: UUID
    deploy_epoch: int
    type: str
    requested_at: datetime
    requested_by: str
    issued_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: str | None = None
    failure: str | None = None
    result: JsonObject | None = None
    waits: Waits | None = None


class ReportedWipe(Answer):
    """What a wipe has reported; `proven`: every disk was read back as zeroes, and nothing remains."""

    proven: bool
    report: JsonObject


class Finding(Answer):
    """What is wrong with a machine after its release, whose slots are in quarantine for it."""

    code: str
    detail: str
    next_step: str | None = None


class DeployRun(Answer):
    """A run of a deploy system: switch off, start, its task, end; `outcome` None: it is open.

    `wipe`: what was reported; None: nothing, or it wipes nothing. `findings`: what is wrong with the machine after a release.
    """

    id: UUID
    node_id: UUID
    site_id: UUID
    kind: str
    step: str
    smbios_uuid: UUID
    network: JsonObject
    requested_at: datetime
    requested_by: str
    root_disk: JsonObject | None = None
    allocation_id: UUID | None = None
    stop_requested_at: datetime | None = None
    stop_requested_by: str | None = None
    deploy_epoch: int | None = None
    ended_at: datetime | None = None
    outcome: str | None = None
    failure: str | None = None
    wipe: ReportedWipe | None = None
    isolation: str = "none"
    findings: list[Finding] = Field(default_factory=list)
    waits: Waits | None = None


class NotWipeable(Refused):
    """The newest inspection of the machine does not name all that a wipe must erase."""

    codes = ("machine_not_wipeable",)


class NoDeploySystem(Refused):
    """The node has no deploy system that could perform a task."""

    codes = ("no_deploy_system",)


class MachineUnknown(Refused):
    """The machine of the node was not inspected, and the request does not name it."""

    codes = ("machine_unknown",)


class DeployNotConfigured(Refused):
    """The installation has no address or CA for deploy systems."""

    codes = ("deploy_not_configured",)


class DeployRefused(Forbidden):
    """The control plane refuses a deploy system that presents a known token."""

    codes = ("deploy_refused",)


class DeploySystemEnded(Unauthenticated):
    """The certificate of a deploy system does not count any more."""

    codes = ("deploy_system_ended",)
