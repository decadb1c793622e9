"""What was done to one device of a released allocation, and what was found afterwards."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from berth.process.json_objects import JsonObject
from node_agent.wire.fields import STORABLE, Truth, Wire


class WipeLevel(StrEnum):
    """What was done to the medium, in the terms of NIST SP 800-88. `none`: the data are unreachable, the medium untouched."""

    NONE = "none"
    CLEAR = "clear"
    PURGE = "purge"
    DESTROY = "destroy"


class DeviceWipe(Wire):
    """Proof for one device that an allocation had; no more than was found by looking.

    `ReleaseResult.evidence["devices"]` has one for each device of `ProvisionResult.evidence["devices"]`. `device` is the
    name that discovery gives it, or the path of a file below the driver's directory. `checked` says what was read back.
    """

    device: Annotated[str, Field(min_length=1, max_length=200, pattern=STORABLE)]
    kind: Literal["disk", "gpu", "memory", "firmware"]
    serial: Annotated[str, Field(max_length=200, pattern=STORABLE)] | None = None
    method: Annotated[str, Field(min_length=1, max_length=64, pattern=STORABLE)]
    level: WipeLevel
    proven: Truth
    checked: JsonObject = Field(default_factory=dict)
