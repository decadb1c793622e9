"""What a wipe statement says of a whole machine besides its disks; no more than the deploy system found."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from node_agent.wire.deploy_tasks import FIRMWARE_MAX
from node_agent.wire.fields import STORABLE, Exact, Whole
from node_agent.wire.topology import DISKS_MAX, GAPS_MAX


class UefiComparison(Exact):
    """The firmware's variables after the wipe, compared with those of the inspection: none remains that it had not found.

    `removed`: how many were deleted in the firmware's view. `raw_store_erased` is always false: their bytes may still be in
    the raw variable store. `changed`: known names with another value, which stays.
    """

    removed: Whole
    changed: Whole
    raw_store_erased: Literal[False] = False


class FirmwareReading(Exact):
    """The versions of firmware that the deploy system read: how many, and the digest of their list in the report."""

    versions: Annotated[Whole, Field(le=FIRMWARE_MAX)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class MachineWipe(Exact):
    """What the deploy system of this epoch found. `disks_found`: how many disks the machine has, each a device of the statement.

    `tpm`: `absent` and `not_asked` claim nothing. `uefi_variables` null: none was compared, as on a machine that started by BIOS.
    `firmware` null: it was not read. `gaps`: what could not be read or compared as a whole, by name.
    """

    deploy_epoch: Annotated[Whole, Field(ge=1)]
    disks_found: Annotated[Whole, Field(ge=1, le=DISKS_MAX)]
    tpm: Literal["cleared", "absent", "not_asked"]
    uefi_variables: UefiComparison | None
    firmware: FirmwareReading | None
    gaps: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=300, pattern=STORABLE)]], Field(max_length=GAPS_MAX)
    ] = Field(default_factory=list)
