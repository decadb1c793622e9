"""Reads sysfs and the kernel's log, and prints a report: `python -m node_agent.probes.hardware DRIVER ROOT`.

A separate process, because a read of sysfs can block for as long as a device does not answer its driver.
"""

from __future__ import annotations

import sys
from pathlib import Path

from node_agent.discovery import pci
from node_agent.discovery.reading import Gaps, Tree
from node_agent.probes.disks import disk_states
from node_agent.probes.kernel_log import xids
from node_agent.probes.memory import memory
from node_agent.probes.ports import ports
from node_agent.wire.health import GpuHealth, HealthReport


def read_health(driver: str, root: Path) -> HealthReport:
    """What the files below `root` say. Never raises for what it finds there."""
    tree = Tree(root, Gaps())
    content = {"memory": memory(tree), "disks": disk_states(tree), "gpus": _gpus(tree), "nics": ports(tree)}
    return HealthReport.model_validate({"driver": driver, **content, "gaps": tree.gaps.all()})


def _gpus(tree: Tree) -> list[GpuHealth] | None:
    devices = pci.pci_devices(tree)
    if devices is None:
        return None
    found = pci.gpus(tree, devices)
    errors = xids(tree) if found else None
    return [
        GpuHealth(address=gpu.address, xids=None if errors is None else errors.get(gpu.address, [])) for gpu in found
    ]


if __name__ == "__main__":
    sys.stdout.buffer.write(read_health(sys.argv[1], Path(sys.argv[2])).canonical())
