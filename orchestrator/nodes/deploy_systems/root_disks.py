"""Which disk of an inspected machine an image is written to: of those that an operator's hint allows the smallest. Pure."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, ValidationError

from berth.process.json_objects import JsonMapping, JsonObject
from node_agent.wire.deploy_tasks import DiskIdentity, MetalInspectReport, Serial
from node_agent.wire.fields import Exact, Whole
from node_agent.wire.topology import Disk

SPARE_BYTES: Final = 16 * 2**20
"""Beside the image: the config drive, and the backup of the partition table."""
MEMBER: Final = "root_disk"
"""Where what a run is permitted with has the hint; absent without one."""

RootDiskKind = Literal["nvme", "scsi", "virtio"]
_KINDS: Final[dict[str, RootDiskKind]] = {"nvme": "nvme", "sd": "scsi", "vd": "virtio"}
"""By the beginning of the kernel's name: SATA, SAS and USB are `sd`."""


class NoRootDisk(Exception):
    """No disk of the inspection can be the root disk; the message says why."""


class RootDiskHint(Exact):
    """What the root disk of the machine must be; a member that is absent or null allows every disk."""

    serial: Serial | None = None
    kind: RootDiskKind | None = Field(None, description="`scsi`: SATA, SAS and USB")
    size_bytes_min: Annotated[Whole, Field(ge=1)] | None = None

    @classmethod
    def of(cls, medium: JsonMapping) -> Self:
        """That of a run, from what it is permitted with."""
        return cls.model_validate(medium.get(MEMBER) or {})

    def document(self) -> JsonObject:
        """The members that are given."""
        return self.model_dump(mode="json", exclude_none=True)

    def allows(self, disk: Disk) -> bool:
        """Whether the disk is as the hint says."""
        kind = next((kind for start, kind in _KINDS.items() if disk.name.startswith(start)), None)
        return (
            self.serial in (None, disk.serial)
            and self.kind in (None, kind)
            and (self.size_bytes_min is None or (disk.size_bytes or 0) >= self.size_bytes_min)
        )


def root_disk_of(report: MetalInspectReport, image_bytes: int, hint: RootDiskHint) -> DiskIdentity:
    """The smallest disk that the hint allows and the image fits. Raises `NoRootDisk`."""
    given = ", ".join(f"{name} {value}" for name, value in hint.document().items())
    disk_said = f"disk that the hint for the root disk allows ({given})" if given else "disk"
    allowed = [disk for disk in report.topology.disks or () if hint.allows(disk)]
    if not allowed:
        raise NoRootDisk(f"the inspection has found no {disk_said}")
    found: list[DiskIdentity] = []
    nameless: list[str] = []
    least = image_bytes + SPARE_BYTES
    for disk in allowed:
        try:
            found.append(DiskIdentity.model_validate({"serial": disk.serial, "size_bytes": disk.size_bytes}))
        except ValidationError:
            if disk.size_bytes is None or disk.size_bytes >= least:
                nameless.append(disk.name)
    fitting = [disk for disk in found if disk.size_bytes >= least]
    if fitting:
        return min(fitting, key=lambda disk: (disk.size_bytes, disk.serial))
    if nameless:
        raise NoRootDisk(
            f"no {disk_said} can be named in the task of a deployment: {', '.join(nameless)[:200]} has no usable serial or size;"
            " replace it, and inspect again"
        )
    raise NoRootDisk(f"no {disk_said} holds the image's {image_bytes} bytes and the config drive")
