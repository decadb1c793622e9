"""Whether PCI functions of the host can be given to a guest: what is looked at, and what is wrong. Changes nothing.

A device reaches the memory of every other function in its IOMMU group. So each of these belongs to the slice, or is a bridge.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from node_agent.discovery.pci import DEVICES
from node_agent.discovery.reading import Gaps, Tree
from node_agent.gpu_reset.functions import VFIO_DRIVERS, look, open_files_of_processes

DRIVER = "vfio-pci"
MODULE = "sys/bus/pci/drivers/vfio-pci"
GROUPS = "sys/kernel/iommu_groups"
HOST_DRIVERS = frozenset({"nvidia", "nouveau", "amdgpu", "snd_hda_intel", "xhci_hcd", "nvidia-gpu", "pcieport"})
"""Drivers that a GPU and the functions beside it are taken from, and get back."""
_BRIDGE = "0x0604"
_MINOR = re.compile(r"^Device Minor:\s*([0-9]{1,5})\s*$", re.MULTILINE)


class Lack(StrEnum):
    """What a host lacks. Each is a code of the checks of a host too (docs/reference/fleet/host-checks.md)."""

    DEVICE_MISSING = "vfio_device_missing"
    DEVICE_SILENT = "vfio_device_silent"
    IOMMU_OFF = "vfio_iommu_off"
    MODULE_MISSING = "vfio_module_missing"
    GROUP_SHARED = "vfio_group_shared"
    DRIVER_HOLDS = "vfio_driver_holds"
    DEVICE_IN_USE = "vfio_device_in_use"
    DEVICE_TAKEN = "vfio_device_taken"
    RESET_MISSING = "vfio_reset_missing"
    SYSFS_CLOSED = "vfio_sysfs_closed"
    NODE_CLOSED = "vfio_node_closed"


REMEDIES = {
    Lack.DEVICE_MISSING: "look for the device with lspci, and approve the node's topology anew if hardware was changed",
    Lack.DEVICE_SILENT: "reboot the node, or cut its power; if the device stays silent, it is defective",
    Lack.IOMMU_OFF: "switch VT-d or AMD-Vi on in the firmware, and boot Linux with intel_iommu=on iommu=pt (AMD: iommu=pt)",
    Lack.MODULE_MISSING: "modprobe vfio-pci, and write vfio-pci to /etc/modules-load.d/vfio.conf",
    Lack.GROUP_SHARED: "switch ACS on in the firmware, or offer slices that have all GPUs of the group",
    Lack.DRIVER_HOLDS: "unbind it from that driver; Berth takes GPUs from drivers of GPUs alone",
    Lack.DEVICE_IN_USE: "end these processes; for the driver nvidia: systemctl disable --now nvidia-persistenced dcgm",
    Lack.DEVICE_TAKEN: "release that allocation, or put back the slots.json that it began under",
    Lack.RESET_MISSING: "the kernel knows no way to reset it, so it is given to no guest; install newer firmware",
    Lack.SYSFS_CLOSED: "install deploy/guests/berth-agent-vfio.conf: the unit gives the agent no right to bind devices",
    Lack.NODE_CLOSED: "install deploy/guests/berth-agent-vfio.conf, and see that udev makes /dev/vfio",
}


@dataclass(frozen=True)
class Objection:
    """One thing that keeps a device from a guest."""

    lack: Lack
    found: str

    def __str__(self) -> str:
        return f"{self.found} [{self.lack}]; {REMEDIES[self.lack]}"


class VfioNotReady(Exception):
    """The host cannot give these devices to a guest. The text names each objection, with a remedy."""

    def __init__(self, objections: Sequence[Objection]) -> None:
        super().__init__("; ".join(map(str, objections)))
        self.objections = tuple(objections)


@dataclass(frozen=True)
class Member:
    """A function of an IOMMU group."""

    address: str
    is_bridge: bool
    driver: str | None


@dataclass(frozen=True)
class Seen:
    """A function as sysfs shows it. `users`: processes that have it open; None: not known. `pci_id` is None if it is silent."""

    address: str
    exists: bool = True
    pci_id: str | None = None
    driver: str | None = None
    group: str | None = None
    members: tuple[Member, ...] = ()
    methods: tuple[str, ...] = ()
    users: int | None = 0


def see(root: Path, address: str) -> Seen:
    """The function at this address now."""
    tree, directory = Tree(root, Gaps()), f"{DEVICES}/{address}"
    found = look(root, [address]).functions
    if not found:
        return Seen(address, exists=False)
    (one,) = found
    group = tree.link_name(f"{directory}/iommu_group")
    members = [] if group is None else tree.names(f"{GROUPS}/{group}/devices") or []
    return Seen(
        address, True, one.pci_id, one.driver, group, tuple(_member(tree, name) for name in members),
        tuple(one.methods), one.users if one.driver in VFIO_DRIVERS else _users_of_driver(root, address, one.driver),
    )  # fmt: skip


def has_module(root: Path) -> bool:
    """Whether vfio-pci is there."""
    return (root / MODULE).is_dir()


def beside(seen: Seen) -> list[str]:
    """The other functions of the same card in its group: sound, USB. They are bound with it, and no guest has them."""
    card = seen.address.rpartition(".")[0]
    return [
        one.address for one in seen.members
        if one.address.rpartition(".")[0] == card and one.address != seen.address and not one.is_bridge
    ]  # fmt: skip


def objections(found: Sequence[Seen], *, module: bool, host_drivers: Collection[str] = HOST_DRIVERS) -> list[Objection]:
    """Everything that keeps these functions, together, from one guest."""
    ours = {one.address for one in found} | {other for one in found for other in beside(one)}
    why: list[Objection] = []
    if not module:
        why.append(Objection(Lack.MODULE_MISSING, f"the kernel has no driver {DRIVER}"))
    for one in found:
        why += _of_one(one, ours, host_drivers)
    return why


def _of_one(one: Seen, ours: Collection[str], host_drivers: Collection[str]) -> list[Objection]:
    if not one.exists:
        return [Objection(Lack.DEVICE_MISSING, f"there is no device at {one.address}")]
    why: list[Objection] = []
    if one.pci_id is None:
        why.append(Objection(Lack.DEVICE_SILENT, f"{one.address} does not answer on the bus"))
    if one.group is None:
        why.append(Objection(Lack.IOMMU_OFF, f"{one.address} is in no IOMMU group"))
    foreign = [other for other in one.members if other.address not in ours and not other.is_bridge]
    if foreign:
        shown = ", ".join(f"{other.address} ({other.driver or 'without a driver'})" for other in foreign)
        why.append(Objection(Lack.GROUP_SHARED, f"{one.address} shares IOMMU group {one.group} with {shown}"))
    drivers = {one.address: one.driver} | {
        other.address: other.driver for other in one.members if other.address in beside(one)
    }
    for address, driver in drivers.items():
        if driver not in (None, DRIVER, *host_drivers):
            why.append(Objection(Lack.DRIVER_HOLDS, f"the driver {driver} holds {address}"))
    if one.users is None or one.users:
        shown = "open files cannot be read" if one.users is None else f"{one.users} processes have it open"
        why.append(Objection(Lack.DEVICE_IN_USE, f"{one.address}: {shown}"))
    if not one.methods:
        why.append(Objection(Lack.RESET_MISSING, f"{one.address} cannot be reset"))
    return why


def node_objection(root: Path, group: str) -> Objection | None:
    """Why the group's device file cannot be opened, by the kernel's answer."""
    path = root / "dev/vfio" / group
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        shown = f"/dev/vfio/{group}: {error.strerror}"
        return Objection(Lack.DEVICE_IN_USE if error.errno == 16 else Lack.NODE_CLOSED, shown)
    return None


def _member(tree: Tree, address: str) -> Member:
    directory = f"{DEVICES}/{address}"
    kind = tree.line(f"{directory}/class") or ""
    return Member(address, kind.startswith(_BRIDGE), tree.link_name(f"{directory}/driver"))


def _users_of_driver(root: Path, address: str, driver: str | None) -> int | None:
    """Processes that have the GPU open through the driver `nvidia`: its unbinding would wait for them for ever."""
    if driver != "nvidia":
        return 0
    tree = Tree(root, Gaps())
    said = (tree.raw(f"proc/driver/nvidia/gpus/{address}/information") or b"").decode(errors="replace")
    found = _MINOR.search(said)
    return 0 if found is None else open_files_of_processes(tree, {f"/dev/nvidia{found[1]}"})
