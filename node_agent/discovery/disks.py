"""Whole disks."""

from __future__ import annotations

import re

from node_agent.discovery.reading import Tree
from node_agent.wire.fields import INTEGER_MAX
from node_agent.wire.topology import DISKS_MAX, NAME_MAX, Disk, WipeMethod

_BLOCK = "sys/block"
_SECTOR_BYTES = 512  # of /sys/block/*/size, whatever the disk's own sectors are
_DISK = re.compile(r"^(nvme[0-9]+n[0-9]+|sd[a-z]+|vd[a-z]+|xvd[a-z]+|mmcblk[0-9]+)$")


def disks(tree: Tree) -> list[Disk] | None:
    """NVMe, SCSI, SATA and virtio disks by name; partitions, loop devices and device-mapper are left out."""
    found = tree.names(_BLOCK)
    if found is None:
        return None
    names = [name for name in found if _DISK.match(name) and len(name) <= NAME_MAX]
    if len(names) > DISKS_MAX:
        tree.gaps.add("disks", f"{len(names)} were found, the first {DISKS_MAX} are listed")
    return [_disk(tree, name) for name in names[:DISKS_MAX]]


def _disk(tree: Tree, name: str) -> Disk:
    disk = f"{_BLOCK}/{name}"
    sectors = tree.number(f"{disk}/size", INTEGER_MAX // _SECTOR_BYTES)
    rotational = tree.number(f"{disk}/queue/rotational")
    numa_node = tree.number(f"{disk}/device/numa_node")
    return Disk(
        name=name,
        model=tree.line(f"{disk}/device/model"),
        serial=tree.line(f"{disk}/device/serial") or tree.line(f"{disk}/serial"),
        size_bytes=sectors * _SECTOR_BYTES if sectors is not None else None,
        rotational=bool(rotational) if rotational is not None else None,
        # A namespace of NVMe lies below its controller, which lies below the PCI device.
        numa_node=numa_node if numa_node is not None else tree.number(f"{disk}/device/device/numa_node"),
        wipe_methods=_wipe_methods(tree, disk),
    )


def _wipe_methods(tree: Tree, disk: str) -> list[WipeMethod]:
    """What the kernel offers for this disk; none for one that is read-only."""
    if tree.number(f"{disk}/ro") != 0:
        return []
    methods: list[WipeMethod] = ["overwrite"]
    if tree.number(f"{disk}/queue/write_zeroes_max_bytes", INTEGER_MAX):
        methods.append("write_zeroes")
    if tree.number(f"{disk}/queue/discard_max_bytes", INTEGER_MAX):
        methods.append("discard")
    return methods
