"""Processors, memory and NUMA nodes."""

from __future__ import annotations

import os
import re

from node_agent.discovery.reading import Tree, printable
from node_agent.wire.fields import INTEGER_MAX
from node_agent.wire.topology import NUMA_NODES_MAX, TEXT_MAX, NumaNode, Processors

_CPUS = "sys/devices/system/cpu"
_NODES = "sys/devices/system/node"
_NODE = re.compile(r"^node([0-9]{1,5})$")
_CPU = re.compile(r"^cpu([0-9]{1,5})$")
_KILOBYTES = re.compile(r"MemTotal:\s+([0-9]{1,15}) kB")


def processors(tree: Tree) -> Processors:
    """Sockets and cores are counted from the topology of each processor that is online."""
    places = list(core_of_processors(tree).values())
    sockets = {socket for socket, _ in places}
    model = re.search(r"^model name\s*:\s*(.+)$", (tree.raw("proc/cpuinfo") or b"").decode(errors="replace"), re.M)
    return Processors(
        architecture=os.uname().machine,
        model=(printable(model.group(1))[:TEXT_MAX].strip() or None) if model else None,
        sockets=len(sockets) or None,
        cores=len(set(places)) or None,
        threads=len(places) or None,
    )


def memory_bytes(tree: Tree) -> int | None:
    """The memory of the whole node."""
    return _total(tree, "proc/meminfo")


def numa_nodes(tree: Tree) -> list[NumaNode] | None:
    """The NUMA nodes, in the order of their numbers."""
    names = tree.names(_NODES)
    if names is None:
        return None
    numbers = sorted(int(found.group(1)) for name in names if (found := _NODE.match(name)))
    if len(numbers) > NUMA_NODES_MAX:
        tree.gaps.add("numa_nodes", f"{len(numbers)} were found, the first {NUMA_NODES_MAX} are listed")
    return [
        NumaNode(
            number=number,
            processors=tree.line(f"{_NODES}/node{number}/cpulist"),
            memory_bytes=_total(tree, f"{_NODES}/node{number}/meminfo"),
        )
        for number in numbers[:NUMA_NODES_MAX]
    ]


def core_of_processors(tree: Tree) -> dict[int, tuple[int, int]]:
    """Socket and core of each processor that is online."""
    found: dict[int, tuple[int, int]] = {}
    for name in tree.names(_CPUS) or []:
        if (number := _CPU.match(name)) is None:
            continue
        socket = tree.number(f"{_CPUS}/{name}/topology/physical_package_id")
        core = tree.number(f"{_CPUS}/{name}/topology/core_id")
        if socket is not None and core is not None:
            found[int(number[1])] = (socket, core)
    return found


def _total(tree: Tree, path: str) -> int | None:
    data = tree.raw(path)
    found = _KILOBYTES.search(data.decode(errors="replace")) if data is not None else None
    return min(int(found.group(1)) * 1024, INTEGER_MAX) if found else None
