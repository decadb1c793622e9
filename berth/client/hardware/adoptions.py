"""The adoption of a machine that runs already (docs/reference/metal/adoptions.md)."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from berth.client.errors import Refused
from berth.client.models import Allocation, Answer
from berth.process.json_objects import JsonObject


class Adoption(Answer):
    """The adoption of the machine of a node, and the allocation on it. `gaps`: what its BMC did not show.

    `inspected`: whether a run of the allocation has inspected it since.
    """

    node_id: UUID
    allocation: Allocation
    adopted_at: datetime
    adopted_by: str
    machine: JsonObject
    smbios_uuid: UUID
    network: JsonObject
    macs: list[str] = Field(default_factory=list)
    gaps: list[str] = Field(default_factory=list)
    inspected: bool = False


class NotAdoptable(Refused):
    """A machine that runs already cannot be adopted as it is; `reason` of its `extra` is one word."""

    codes = ("machine_not_adoptable",)
