"""Errors of the memory, as EDAC counts them."""

from __future__ import annotations

import re

from node_agent.discovery.reading import Tree
from node_agent.wire.fields import INTEGER_MAX
from node_agent.wire.health import CONTROLLERS_MAX, MemoryController

_EDAC = "sys/devices/system/edac/mc"
_CONTROLLER = re.compile(r"^mc[0-9]{1,4}$")


def memory(tree: Tree) -> list[MemoryController] | None:
    """The memory controllers; None if the kernel has no EDAC driver for them."""
    names = tree.names(_EDAC)
    if names is None:
        return None
    found = sorted((name for name in names if _CONTROLLER.match(name)), key=lambda name: int(name[2:]))
    if len(found) > CONTROLLERS_MAX:
        tree.gaps.add("memory", f"{len(found)} controllers were found, the first {CONTROLLERS_MAX} are listed")
    if not found:
        return None  # the directory is there without a driver
    return [
        MemoryController(
            name=name,
            corrected=tree.number(f"{_EDAC}/{name}/ce_count", INTEGER_MAX),
            uncorrected=tree.number(f"{_EDAC}/{name}/ue_count", INTEGER_MAX),
        )
        for name in found[:CONTROLLERS_MAX]
    ]
