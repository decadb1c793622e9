"""Lists of accepted firmware."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, FailFast, Field

from berth.process.bounded_models import at_most
from node_agent.wire.topology import TEXT_MAX
from orchestrator.http.fields import Request
from orchestrator.nodes.firmware.rules import COMPONENTS_MAX, VERSIONS_MAX

Stated = Annotated[str, Field(min_length=1, max_length=TEXT_MAX, pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$")]
"""Text as firmware states it, printable ASCII."""


class AcceptedFirmware(Request):
    """The accepted versions of a component; without `model`, of every part of it."""

    component: Literal["bios", "bmc", "disk", "nic", "inventory"] = Field(
        description="`inventory`: an entry of the firmware inventory of the BMC, whose name is the `model`"
    )
    model: Stated | None = None
    versions: Annotated[list[Stated], Field(min_length=1, max_length=VERSIONS_MAX), FailFast(), at_most(VERSIONS_MAX)]


class PutFirmwareList(Request):
    """The accepted firmware of a model, which is named as SMBIOS names the machine (`firmware.vendor`, `product`)."""

    vendor: Stated
    product: Stated
    components: Annotated[
        list[AcceptedFirmware], Field(min_length=1, max_length=COMPONENTS_MAX), FailFast(), at_most(COMPONENTS_MAX)
    ]


class ListedFirmware(BaseModel):
    """The accepted versions of a component."""

    component: str
    model: str | None
    versions: list[str]


class FirmwareList(BaseModel):
    """The accepted firmware of a model of machines."""

    id: UUID
    vendor: str
    product: str
    components: list[ListedFirmware]
    changed_at: datetime
    changed_by: str
