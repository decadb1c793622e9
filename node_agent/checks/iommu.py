"""Checks that an IOMMU separates the GPUs of the host: without one no guest may be given a device."""

from __future__ import annotations

from collections.abc import Sequence

from node_agent.checks.finding import Code, Finding
from node_agent.discovery.pci import gpus, pci_devices
from node_agent.discovery.reading import Tree
from node_agent.wire.topology import Gpu

GROUPS = "sys/kernel/iommu_groups"
_NAME = "iommu"
_REMEDY = "switch VT-d or AMD-Vi on in the firmware, and boot Linux with intel_iommu=on iommu=pt (AMD: iommu=pt)"


def check_iommu(tree: Tree) -> Finding:
    """Check that each GPU is in an IOMMU group."""
    return judge_iommu(gpus(tree, pci_devices(tree) or []), len(tree.names(GROUPS) or ()))


def judge_iommu(found: Sequence[Gpu], groups: int) -> Finding:
    """The finding for the GPUs and the number of IOMMU groups."""
    outside = [gpu.address for gpu in found if gpu.iommu_group is None or not groups]
    if outside:
        shown = f"{', '.join(outside[:4])}{' and more' if len(outside) > 4 else ''}"
        return Finding(
            _NAME, f"{len(outside)} of {len(found)} GPUs are in no IOMMU group: {shown}", Code.IOMMU_OFF, _REMEDY
        )
    if not groups:
        return Finding(_NAME, "it is off, and there is no GPU that needs it", Code.IOMMU_UNNEEDED)
    return Finding(_NAME, f"{groups} groups; each of {len(found)} GPUs is in one")
