"""Health of nodes' hardware."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from berth.client.errors import Refused
from berth.client.models import Answer, Waits
from berth.process.json_objects import JsonObject


class HealthFault(Answer):
    """A value beyond its threshold, and the slots that it takes out of service; none if no slot has this GPU."""

    cause: str
    subject: str
    found: str
    limit: str
    slots: list[int]
    count: int | None = None


class SlotWork(Answer):
    """What an operator has done on slots that are out of service; `outcome` None: it is open."""

    id: UUID
    node_id: UUID
    slots: list[int]
    requested_at: datetime
    requested_by: str
    issued_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: str | None = None
    failure: str | None = None
    report: JsonObject | None = None
    waits: Waits | None = None


class BurnIn(SlotWork):
    """A test of slots in quarantine. `shared`: allocations were on other slots of the node."""

    shared: bool | None = None


class BurnInRequired(Refused):
    """A slot that a fault of the hardware took out returns only after a burn-in that passed since."""

    codes = ("burn_in_required",)


class BurnInUnsupported(Refused):
    """The node's agent is of a version that has no burn-in."""

    codes = ("burn_in_unsupported",)


class GpuReset(SlotWork):
    """A reset of the GPU of a slot, and of those that are reset together with it."""

    gpus: list[str]


class GpuResetUnsupported(Refused):
    """The node's agent is of a version that has no reset of GPUs."""

    codes = ("gpu_reset_unsupported",)


class GpusInService(Refused):
    """GPUs that are reset together are not all out of service."""

    codes = ("gpus_in_service",)


class NodeHealth(Answer):
    """How the hardware of a node is, by its last health probe. `waits`: a probe is open."""

    node_id: UUID
    report: JsonObject | None = None
    reported_at: datetime | None = None
    faults: list[HealthFault]
    accepted: dict[str, int] = Field(default_factory=dict)
    failure: str | None = None
    next_at: datetime
    waits: Waits | None = None
    burn_in: BurnIn | None = None


class HealthReport(Answer):
    """An earlier report, with what was a fault then."""

    id: UUID
    node_id: UUID
    reported_at: datetime
    report: JsonObject
    faults: list[HealthFault]
