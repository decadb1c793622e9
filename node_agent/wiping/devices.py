"""What was done to one device of a released allocation, and what was found afterwards."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from berth.process.json_objects import JsonObject
from node_agent.wire.fields import STORABLE, Exact, Truth


class WipeLevel(StrEnum):
    """What was done to the medium, in the terms of NIST SP 800-88. `none`: the data are unreachable, the medium untouched."""

    NONE = "none"
    CLEAR = "clear"
    PURGE = "purge"
    DESTROY = "destroy"


_PURGES: Final = frozenset(
    {
        "nvme_sanitize_crypto", "nvme_sanitize_block", "nvme_format_crypto", "nvme_format_user_data",
        "ata_sanitize_crypto", "ata_sanitize_block", "ata_secure_erase_enhanced", "ata_secure_erase",
        "scsi_sanitize_crypto", "scsi_sanitize_block",
    }
)  # fmt: skip


def level_of(method: str) -> WipeLevel:
    """The level that a method of a deploy system reaches where it was proven: `purge` for the device's own, `clear` for the
    host's writes."""
    return WipeLevel.PURGE if method in _PURGES else WipeLevel.CLEAR


class DeviceWipe(Exact):
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
