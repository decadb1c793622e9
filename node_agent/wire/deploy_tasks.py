"""Tasks of a deploy system: what `metal.inspect`, `metal.deploy`, `metal.wipe` and `metal.rescue` are given and return.

A disk is named by serial and size, never by the kernel's name. A part that could not be read is absent and named in `gaps`.
A task that cannot do all of its work fails with a code of `DeployFailureCode`; nothing is reported that was not read back.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from berth.process.json_objects import JsonObject
from node_agent.wire.deploy_medium import DeployEpoch, Mac
from node_agent.wire.fields import STORABLE, Exact, Seconds, Truth, Whole, Wire
from node_agent.wire.images import ImageParameters
from node_agent.wire.topology import DISKS_MAX, GAPS_MAX, NICS_MAX, Gap, Name, PciAddress, Text, Topology

REPORT_BYTES_MAX: Final = 60 * 1024
"""Below the bound of a result: the envelope of the report comes on top."""
UEFI_VARIABLES_MAX: Final = 192
CONTROLLERS_MAX: Final = 32
FIRMWARE_MAX: Final = 96
MARKERS_MAX: Final = 8
ATTEMPTS_MAX: Final = 8
SSH_KEYS_MAX: Final = 64
SSH_KEY_LENGTH_MAX: Final = 16_384
SSH_PUBLIC_KEY: Final = r"^[a-z0-9][a-z0-9@.-]* [A-Za-z0-9+/]+={0,2}( [^\x00-\x1f\x7f]*)?$"
"""One line without options, as the API stores it."""
USER_DATA_MAX: Final = 65_536
"""These as the API has them (orchestrator/http/fields.py, orchestrator/tenants/ssh_key_format.py)."""
PARAMETERS_BYTES_MAX: Final = 128 * 1024
"""Of a task, as JSON."""
DETAIL_MAX: Final = 200

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Serial = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$")]
Detail = Annotated[str, Field(max_length=DETAIL_MAX, pattern=r"^[\x20-\x7e]*$")]
Controllers = Annotated[list[PciAddress], Field(max_length=CONTROLLERS_MAX)]
UefiName = Annotated[
    str, Field(min_length=38, max_length=160, pattern=r"^[\x20-\x7e]+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
]
"""As efivarfs names it: `BootOrder-8be4df61-93ca-11d2-aa0d-00e098032b8c`."""


class DeployFailureCode(StrEnum):
    """Why a task of a deploy system failed."""

    TASK_REFUSED = "task_refused"
    """It was not begun: not for this machine or time, or its parameters are unusable."""
    DISK_MISSING = "disk_missing"
    """A disk that the task names is not there, or has another size."""
    DISK_UNKNOWN = "disk_unknown"
    """The machine has a disk that the task does not name."""
    DISK_AMBIGUOUS = "disk_ambiguous"
    """Two disks have the serial that the task names, or a disk has none."""
    STORAGE_WITHOUT_DRIVER = "storage_without_driver"
    """No driver has taken a storage controller: the disks behind it cannot be seen."""
    IMAGE_DOWNLOAD_FAILED = "image_download_failed"
    IMAGE_CHECKSUM_MISMATCH = "image_checksum_mismatch"
    IMAGE_DOES_NOT_FIT = "image_does_not_fit"
    IMAGE_UNUSABLE = "image_unusable"
    """It is no image of its format, or has no partition to grow."""
    READ_BACK_MISMATCH = "read_back_mismatch"
    """The disk does not hold what was written."""
    BOOT_ENTRY_FAILED = "boot_entry_failed"
    WIPE_NOT_PROVEN = "wipe_not_proven"
    """Content was read after every method that the disk accepts."""
    UEFI_VARIABLES_REMAIN = "uefi_variables_remain"
    TPM_NOT_CLEARED = "tpm_not_cleared"
    RESCUE_UNAVAILABLE = "rescue_unavailable"
    """The medium has no SSH server."""
    DISK_ERROR = "disk_error"
    """Reading or writing failed."""
    INTERNAL_ERROR = "internal_error"
    """A defect of the deploy system; what was done is unknown."""


class DiskIdentity(Exact):
    """A disk by what does not change between boots."""

    serial: Serial
    size_bytes: Annotated[Whole, Field(ge=1)]


class UefiVariable(Exact):
    """A UEFI variable, and the SHA-256 of its attributes and value as efivarfs has them."""

    name: UefiName
    sha256: Sha256


class FirmwareVersion(Wire):
    """A version of firmware as it was read. `unit` names the part: the serial of a disk, the PCI address of an adapter."""

    component: Annotated[str, Field(pattern=r"^[a-z][a-z_]{0,15}$")]
    unit: Text
    model: Text | None = None
    version: Text


class MetalParameters(Exact):
    """What every task of a deploy system names: its deploy epoch, and what to do after the report.

    `hand_over`: wait until the control plane has ended the permission, forget it, and become the tenant's rescue system.
    """

    deploy_epoch: DeployEpoch
    then: Literal["wait", "power_off", "hand_over"] = "wait"


class MetalInspectParameters(MetalParameters):
    """What `metal.inspect` needs. It writes nothing."""


class LldpNeighbour(Wire):
    """The switch port that a network port is connected to, as the switch announces it (IEEE 802.1AB)."""

    mac: Mac
    chassis_id: Text
    port_id: Text
    system_name: Text | None = None


class MetalInspectReport(Wire):
    """The whole machine. `storage_without_driver`: storage controllers whose disks cannot be seen.

    `topology` is that of `slice.topology_discover`, with `redfish` as its driver. `uefi_variables` is absent on a machine that
    started by BIOS; `neighbours` is absent if nothing listened; `firmware` is absent in reports of earlier versions.
    """

    smbios_uuid: Annotated[str, Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    topology: Topology
    storage_without_driver: Controllers = Field(default_factory=list)
    secure_boot: Truth | None = None
    uefi_variables: Annotated[list[UefiVariable], Field(max_length=UEFI_VARIABLES_MAX)] | None = None
    neighbours: Annotated[list[LldpNeighbour], Field(max_length=NICS_MAX)] | None = None
    firmware: Annotated[list[FirmwareVersion], Field(max_length=FIRMWARE_MAX)] | None = None
    gaps: Annotated[list[Gap], Field(max_length=GAPS_MAX)] = Field(default_factory=list)

    def canonical(self) -> bytes:
        """The JSON of the report: members sorted, absent fields left out, no white space."""
        return canonical(self)


class DataDisk(DiskIdentity):
    """A disk that is not the root disk: kept as it is, or formatted anew with one file system."""

    action: Literal["keep", "format"] = "keep"
    filesystem: Literal["ext4", "xfs"] = "ext4"
    label: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,12}$")] | None = None


class ConfigDrive(Exact):
    """What cloud-init reads at first boot. `network` is a network configuration of version 2 (netplan)."""

    hostname: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
    instance_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]
    ssh_public_keys: Annotated[
        list[Annotated[str, Field(max_length=SSH_KEY_LENGTH_MAX, pattern=STORABLE)]],
        Field(min_length=1, max_length=SSH_KEYS_MAX),
    ]
    user_data: Annotated[str, Field(max_length=USER_DATA_MAX, pattern=STORABLE)] | None = None
    network: JsonObject | None = None


class MetalDeployParameters(MetalParameters):
    """What `metal.deploy` needs. `image_bytes` is the size of the disk in the image, after decompression and conversion.

    The host key is made by the deploy system; only its public part is reported. A disk that is neither the root disk nor a data
    disk of this list is not opened for writing.
    """

    root_disk: DiskIdentity
    image: ImageParameters
    image_bytes: Annotated[Whole, Field(ge=1)]
    grow_root: Truth = True
    data_disks: Annotated[list[DataDisk], Field(max_length=DISKS_MAX)] = Field(default_factory=list)
    config_drive: ConfigDrive
    boot_entry: Truth = True

    @model_validator(mode="after")
    def _names_disks_once(self) -> Self:
        serials = [self.root_disk.serial, *(disk.serial for disk in self.data_disks)]
        if len(set(serials)) < len(serials):
            raise ValueError("names a disk twice")
        return self


class DeployedDisk(DiskIdentity):
    """A data disk after the task."""

    action: Literal["keep", "format"]


class MetalDeployReport(Wire):
    """The image is on the root disk and was read back. `image_sha256` is of the image as fetched, `written_sha256` of the
    `written_bytes` that were written and read back before the partition table was changed."""

    root_disk: DiskIdentity
    image_sha256: Sha256
    written_bytes: Whole
    written_sha256: Sha256
    grown_bytes: Whole | None = None
    config_drive_sha256: Sha256
    host_key: Annotated[str, Field(max_length=4_096, pattern=r"^[a-z0-9][a-z0-9@.-]* [A-Za-z0-9+/]+={0,2}$")]
    boot_entry: Text | None = None
    data_disks: Annotated[list[DeployedDisk], Field(max_length=DISKS_MAX)] = Field(default_factory=list)
    seconds: Seconds = 0.0

    def canonical(self) -> bytes:
        """The JSON of the report: members sorted, absent fields left out, no white space."""
        return canonical(self)


class MetalWipeParameters(MetalParameters):
    """What `metal.wipe` needs: every disk of the machine, and the UEFI variables that inspection found.

    `markers`: bytes (hex) that must not be found anywhere that is read. `clear_tpm`: also clear the TPM.
    """

    disks: Annotated[list[DiskIdentity], Field(min_length=1, max_length=DISKS_MAX)]
    uefi_variables: Annotated[list[UefiVariable], Field(max_length=UEFI_VARIABLES_MAX)] | None = None
    markers: Annotated[list[Annotated[str, Field(pattern=r"^([0-9a-f]{2}){8,64}$")]], Field(max_length=MARKERS_MAX)] = (
        Field(default_factory=list)
    )
    clear_tpm: Truth = False

    @model_validator(mode="after")
    def _names_disks_once(self) -> Self:
        if len({disk.serial for disk in self.disks}) < len(self.disks):
            raise ValueError("names a disk twice")
        return self


class MetalRescueParameters(MetalParameters):
    """What `metal.rescue` needs: the keys that may log in to the rescue system, and no other does."""

    ssh_public_keys: Annotated[
        list[Annotated[str, Field(max_length=SSH_KEY_LENGTH_MAX, pattern=SSH_PUBLIC_KEY)]],
        Field(min_length=1, max_length=SSH_KEYS_MAX),
    ]


class MetalRescueReport(Wire):
    """The rescue system is prepared. `host_key`: made for this rescue alone; its private part stays in the machine's memory."""

    host_key: Annotated[str, Field(max_length=4_096, pattern=r"^ssh-ed25519 [A-Za-z0-9+/]+={0,2}$")]
    seconds: Seconds = 0.0

    def canonical(self) -> bytes:
        """The JSON of the report: members sorted, absent fields left out, no white space."""
        return canonical(self)


class WipeAttempt(Wire):
    """One method on one disk. `accepted`: the tool or kernel said that it was done, which proves nothing."""

    method: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
    accepted: Truth
    detail: Detail = ""


class MetalDiskWipe(DiskIdentity):
    """A disk after the wipe. `method`: the last one that was accepted, after which it was read. `read_bytes` of
    `size_bytes` were read back; all of them were zero if `nonzero_bytes_found` is false."""

    name: Name
    attempts: Annotated[list[WipeAttempt], Field(min_length=1, max_length=ATTEMPTS_MAX)]
    method: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")] | None = None
    read_bytes: Whole
    nonzero_bytes_found: Truth
    markers_found: Whole
    seconds: Seconds = 0.0

    @property
    def proven(self) -> bool:
        """Whether something was read, and nothing but zeroes."""
        return (
            self.method is not None and self.read_bytes > 0 and not self.nonzero_bytes_found and not self.markers_found
        )


class MetalWipeReport(Wire):
    """Every disk of the machine, its UEFI variables and TPM. A completed task has only disks that are `proven`.

    `variables_removed`: those that inspection had not found, deleted in the firmware's view; their bytes may remain in the raw
    variable store. `variables_changed`: known names with another value. `tpm`: None if it was not asked for. `firmware`: as read
    after the wipe; None in reports of earlier versions.
    """

    disks: Annotated[list[MetalDiskWipe], Field(max_length=DISKS_MAX)]
    storage_without_driver: Controllers = Field(default_factory=list)
    variables_removed: Annotated[list[UefiName], Field(max_length=UEFI_VARIABLES_MAX)] = Field(default_factory=list)
    variables_remaining: Annotated[list[UefiName], Field(max_length=UEFI_VARIABLES_MAX)] = Field(default_factory=list)
    variables_changed: Annotated[list[UefiName], Field(max_length=UEFI_VARIABLES_MAX)] = Field(default_factory=list)
    tpm: Literal["cleared", "absent", "refused"] | None = None
    firmware: Annotated[list[FirmwareVersion], Field(max_length=FIRMWARE_MAX)] | None = None
    gaps: Annotated[list[Gap], Field(max_length=GAPS_MAX)] = Field(default_factory=list)
    seconds: Seconds = 0.0

    def canonical(self) -> bytes:
        """The JSON of the report: members sorted, absent fields left out, no white space."""
        return canonical(self)


def canonical(report: Wire) -> bytes:
    """The JSON of a report: members sorted, absent fields left out, no white space."""
    content = report.model_dump(mode="json", exclude_none=True)
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
