"""The machine's disks, by what does not change between boots, and what hides disks: controllers without a driver."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from node_agent.deploy_system.effects.contract import SECTOR_BYTES, Host
from node_agent.deploy_system.effects.steps import Step
from node_agent.discovery.reading import Gaps, Tree, printable
from node_agent.wire.deploy_tasks import DeployFailureCode, DiskIdentity
from node_agent.wire.fields import INTEGER_MAX

DiskKind = Literal["nvme", "sata", "scsi", "usb", "virtio", "other"]
_NO_DISK: Final = re.compile(r"^(loop|ram|sr|zram|fd|md|dm-|nbd)")
_STORAGE_CLASS: Final = "0x01"


@dataclass(frozen=True)
class FoundDisk:
    """A disk of this boot: `name` is the kernel's and means nothing in the next one. `serial` is empty if it states none."""

    name: str
    path: Path
    serial: str
    size_bytes: int
    kind: DiskKind
    rotational: bool
    model: str

    @property
    def identity(self) -> DiskIdentity:
        """Serial and size. Raises pydantic.ValidationError for a disk without a serial."""
        return DiskIdentity(serial=self.serial, size_bytes=self.size_bytes)

    def __str__(self) -> str:
        return f"{self.serial or 'without serial'} ({self.name}, {self.size_bytes} bytes)"


def found_disks(host: Host) -> list[FoundDisk]:
    """Every disk, read-only ones included: what cannot be wiped must not be overlooked. CD drives and empty slots are none."""
    names = sorted(path.name for path in (host.sys / "block").iterdir() if not _NO_DISK.match(path.name))
    tree = Tree(host.sys, Gaps())
    found = []
    for name in names:
        size = (tree.number(f"block/{name}/size", INTEGER_MAX // SECTOR_BYTES) or 0) * SECTOR_BYTES
        if size == 0 or tree.number(f"block/{name}/hidden") == 1:  # hidden: a path of a multipath NVMe disk
            continue
        found.append(
            FoundDisk(
                name=name, path=host.dev / name, serial=_serial(tree, name), size_bytes=size, kind=_kind(host, name),
                rotational=tree.number(f"block/{name}/queue/rotational") == 1,
                model=tree.line(f"block/{name}/device/model") or "",
            )
        )  # fmt: skip
    return found


def storage_without_driver(host: Host) -> list[str]:
    """PCI addresses of storage controllers that no driver has taken, and of NVMe controllers that show no namespace."""
    tree = Tree(host.sys, Gaps())
    hidden = [
        name
        for name in tree.names("bus/pci/devices") or []
        if (tree.line(f"bus/pci/devices/{name}/class") or "").startswith(_STORAGE_CLASS)
        and tree.link_name(f"bus/pci/devices/{name}/driver") is None
    ]
    for name in tree.names("class/nvme") or []:
        parts = tree.names(f"class/nvme/{name}") or []
        if not any(re.match(r"nvme\d+(c\d+)?n\d+$", part) for part in parts):
            hidden.append(tree.line(f"class/nvme/{name}/address") or name)
    return sorted(set(hidden))


def require_drivers(host: Host, step: Step) -> None:
    """Raise `storage_without_driver` if disks may be hidden."""
    if hidden := storage_without_driver(host):
        raise step.failed(DeployFailureCode.STORAGE_WITHOUT_DRIVER, f"no disk is seen behind {', '.join(hidden)}")


def require_same_disks(found: Sequence[FoundDisk], expected: Iterable[DiskIdentity], step: Step) -> None:
    """Raise unless the machine has exactly the expected disks, each with a serial that no other has."""
    _require_distinct(found, step)
    here = {(disk.serial, disk.size_bytes): disk for disk in found}
    wanted = {(disk.serial, disk.size_bytes) for disk in expected}
    if unknown := [str(disk) for key, disk in here.items() if key not in wanted]:
        raise step.failed(DeployFailureCode.DISK_UNKNOWN, f"the task does not name {', '.join(unknown)}"[:400])
    if missing := sorted(wanted - here.keys()):
        named = ", ".join(f"{serial} of {size} bytes" for serial, size in missing)
        raise step.failed(DeployFailureCode.DISK_MISSING, f"not there: {named}"[:400])


def only_disk(found: Sequence[FoundDisk], wanted: DiskIdentity, step: Step) -> FoundDisk:
    """The disk of this serial and size. Raises `disk_missing` or `disk_ambiguous`."""
    matches = [disk for disk in found if disk.serial == wanted.serial]
    if len(matches) > 1:
        raise step.failed(DeployFailureCode.DISK_AMBIGUOUS, f"{len(matches)} disks have the serial {wanted.serial}")
    if not matches:
        raise step.failed(
            DeployFailureCode.DISK_MISSING,
            f"no disk has the serial {wanted.serial}; found: {', '.join(map(str, found)) or 'none'}"[:400],
        )
    if matches[0].size_bytes != wanted.size_bytes:
        raise step.failed(DeployFailureCode.DISK_MISSING, f"{matches[0]} should have {wanted.size_bytes} bytes")
    return matches[0]


def _require_distinct(found: Sequence[FoundDisk], step: Step) -> None:
    if without := [disk.name for disk in found if not disk.serial]:
        raise step.failed(DeployFailureCode.DISK_AMBIGUOUS, f"without a serial: {', '.join(without)}")
    counts = Counter(disk.serial for disk in found)
    if twice := [serial for serial, count in counts.items() if count > 1]:
        raise step.failed(DeployFailureCode.DISK_AMBIGUOUS, f"several disks have the serial {', '.join(twice)}"[:400])


def _serial(tree: Tree, name: str) -> str:
    """VPD page 0x80 before `wwid`, whose text for SATA disks names maker and model too."""
    block = f"block/{name}"
    page = tree.raw(f"{block}/device/vpd_pg80")
    unit = printable(page[4:].decode("ascii", errors="replace")).strip() if page else ""
    plain = tree.line(f"{block}/serial") or tree.line(f"{block}/device/serial")
    return plain or unit[:64].strip() or tree.line(f"{block}/device/wwid") or ""


def _kind(host: Host, name: str) -> DiskKind:
    if name.startswith("nvme"):
        return "nvme"
    if name.startswith("vd"):
        return "virtio"
    if not name.startswith("sd"):
        return "other"
    place = str((host.sys / "block" / name).resolve())
    if "/usb" in place:
        return "usb"
    return "sata" if "/ata" in place else "scsi"
