"""Reads sysfs and prints a topology: `python -m node_agent.discovery.hardware DRIVER ROOT`.

A separate process, because a read of sysfs can block for as long as a device does not answer its driver.
"""

from __future__ import annotations

import sys
from pathlib import Path

from node_agent.discovery import machine, pci
from node_agent.discovery.disks import disks
from node_agent.discovery.nics import nics
from node_agent.discovery.processors import memory_bytes, numa_nodes, processors
from node_agent.discovery.reading import Gaps, Tree
from node_agent.wire.topology import Topology

NO_PCI = "no PCI bus can be listed"


def read_hardware(driver: str, root: Path) -> Topology:
    """What the files below `root` say. Never raises for what it finds there."""
    tree = Tree(root, Gaps())
    devices = pci.pci_devices(tree)
    if devices is None:
        tree.gaps.add("pci_devices", NO_PCI)
    content = {
        "processors": processors(tree),
        "memory_bytes": memory_bytes(tree),
        "numa_nodes": numa_nodes(tree),
        "gpus": None if devices is None else pci.gpus(tree, devices),
        "nics": nics(tree),
        "disks": disks(tree),
        "pci_devices": None if devices is None else pci.bounded_devices(tree, devices),
        "firmware": machine.firmware(tree),
        "tpm": machine.trusted_module(tree),
    }
    return Topology.model_validate({"driver": driver, **content, "gaps": tree.gaps.all()})


if __name__ == "__main__":
    sys.stdout.buffer.write(read_hardware(sys.argv[1], Path(sys.argv[2])).canonical())
