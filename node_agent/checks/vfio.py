"""Checks that the GPUs of the host can be given to guests, for an agent with `BERTH_LIBVIRT_GPUS=vfio`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from node_agent.checks.finding import Code, Finding
from node_agent.discovery.reading import Gaps, Tree
from node_agent.drivers.libvirt.host_slots import found_gpus
from node_agent.drivers.libvirt.vfio.fabric import switches
from node_agent.drivers.libvirt.vfio.judging import DRIVER, REMEDIES, Lack, Objection, Seen, has_module, objections, see

PROBE = "sys/bus/pci/drivers_probe"
_NAME, _FABRIC = "vfio", "fabric"
SHOWN_MAX = 4


def check_vfio(root: Path) -> list[Finding]:
    """Check each GPU of the host, and the rights of this process. A GPU that a guest has is passed over as far as it is used."""
    addresses = [gpu.address for gpu in found_gpus(Tree(root, Gaps())).gpus]
    seen = [see(root, one) for one in addresses]
    may_write = os.access(root / PROBE, os.W_OK)
    return [*judge_vfio(seen, module=has_module(root), may_write=may_write), judge_fabric(switches(root))]


def judge_vfio(seen: Sequence[Seen], *, module: bool, may_write: bool) -> list[Finding]:
    """The findings for the GPUs, one for each lack."""
    if not seen:
        return [Finding(_NAME, "the host has no GPU", Code.VFIO_DEVICE_MISSING, REMEDIES[Lack.DEVICE_MISSING])]
    why = [] if may_write else [Objection(Lack.SYSFS_CLOSED, f"/{PROBE} cannot be written")]
    # Each by itself: a group that several share is a warning, since one slice may hold all of them.
    for number, one in enumerate(seen):
        idle = replace(one, users=0) if one.driver == DRIVER else one
        why += objections([idle], module=module or number > 0)
    if not why:
        return [Finding(_NAME, f"each of {len(seen)} GPUs can be given to a guest")]
    return [
        _finding(lack, [one.found for one in why if one.lack is lack]) for lack in Lack if lack in {o.lack for o in why}
    ]


def judge_fabric(found: Sequence[str]) -> Finding:
    """The finding for the switches between the GPUs."""
    if not found:
        return Finding(_FABRIC, "the host has no NVSwitch")
    remedy = "offer slices whose software needs no NVLink, or whole nodes; Berth activates no partitions of the fabric"
    shown = f"{len(found)} NVSwitches: GPUs in guests have no NVLink, since no partition is activated"
    return Finding(_FABRIC, shown, Code.FABRIC_UNMANAGED, remedy)


def _finding(lack: Lack, found: Sequence[str]) -> Finding:
    more = f" and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
    return Finding(_NAME, f"{'; '.join(found[:SHOWN_MAX])}{more}", Code(lack.value), REMEDIES[lack])
