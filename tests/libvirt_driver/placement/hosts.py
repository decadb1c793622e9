"""Hosts with processors and huge pages, as files of sysfs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from node_agent.drivers.libvirt.placement import Core, pin

GIB = 2**30


def put(root: Path, files: dict[str, object]) -> None:
    """Write these files below `root`."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{content}\n")


def processors(root: Path, nodes: int, cores: int, threads: int = 1) -> None:
    """So many NUMA nodes with as many cores each; threads of one core have numbers far from each other, as on a real host."""
    for node in range(nodes):
        numbers = [thread * nodes * cores + node * cores + core for thread in range(threads) for core in range(cores)]
        put(root, {
            f"sys/devices/system/node/node{node}/cpulist": ",".join(map(str, numbers)),
            f"sys/devices/system/node/node{node}/meminfo": f"Node {node} MemTotal: 1048576 kB",
        })  # fmt: skip
        for place, number in enumerate(numbers):
            topology = f"sys/devices/system/cpu/cpu{number}/topology"
            put(root, {f"{topology}/physical_package_id": node, f"{topology}/core_id": place % cores})


def gpu(root: Path, address: str, numa_node: int) -> None:
    """A GPU on the bus."""
    directory = f"sys/bus/pci/devices/{address}"
    put(root, {
        f"{directory}/vendor": "0x10de", f"{directory}/device": "0x2330", f"{directory}/class": "0x030200",
        f"{directory}/numa_node": numa_node,
    })  # fmt: skip


def huge_pages(root: Path, reserved: int, free: int, node: int | None = None, kib: int = 2048) -> None:
    """A pool of huge pages, of the host or of one NUMA node."""
    pool = "sys/kernel/mm/hugepages" if node is None else f"sys/devices/system/node/node{node}/hugepages"
    put(root, {f"{pool}/hugepages-{kib}kB/nr_hugepages": reserved, f"{pool}/hugepages-{kib}kB/free_hugepages": free})


def placed_changes(slots: list[int]) -> dict[str, Any]:
    """What the record of a guest says on a host with two NUMA nodes of two slots each."""
    cores = [Core(number // 8, (number,)) for number in range(16)]
    placement = pin(cores, [0, 0, 1, 1], 2, None).place(slots, GIB)
    return {"placement": placement, "processors": 2 * len(slots), "memory_bytes": GIB * len(slots)}
