"""Which nodes are upgraded, in which waves, and whether a node may count as upgraded. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

if TYPE_CHECKING:
    from berth.client import Node

DEFAULT_WAVES: Final = ("1", "10%", "50%")
_SIZE: Final = re.compile(r"([1-9][0-9]{0,5})(%?)")
_OUT_OF_REACH: Final = {
    "registered": "no agent has enrolled",
    "enrolling": "no agent has enrolled",
    "retired": "retired",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """What is wrong with a node, as far as an upgrade of its agent could cause it."""

    blocked_slots: int
    slots_out_of_service: frozenset[int]
    unhealthy_allocations: frozenset[UUID]
    faults: frozenset[str]


def wave_sizes(wanted: Sequence[str], nodes: int) -> list[int]:
    """The number of nodes in each wave: numbers, or percentages of all, each at least 1; the rest is the last wave.

    Raises `ValueError` for a size that is neither, or above 100 %.
    """
    sizes: list[int] = []
    for text in wanted:
        found = _SIZE.fullmatch(text)
        if found is None or (found[2] and int(found[1]) > 100):
            raise ValueError(f"{text!r} is no size of a wave: a number of nodes, or a percentage up to 100%")
        left = nodes - sum(sizes)
        size = max(1, nodes * int(found[1]) // 100) if found[2] else int(found[1])
        sizes.append(min(size, left))
    sizes.append(nodes - sum(sizes))
    return [size for size in sizes if size]


def why_left_out(node: Node, version: str) -> str | None:
    """Why a node is not upgraded; None: it is."""
    if node.state in _OUT_OF_REACH:
        return _OUT_OF_REACH[node.state]
    if node.agent_version is None:
        return "it has no agent"
    if node.agent_version == version:
        return "it has the version"
    return None if node.online else "it is offline"


def why_not_ready(node: Node, version: str) -> str | None:
    """Why the agent of a node does not serve with this version; None: it does."""
    if not node.online:
        return "offline"
    if node.agent_version != version:
        return f"its agent has version {node.agent_version}"
    if node.identity_conflict_at is not None:
        return "its identity is in conflict"
    return None if node.key_set_refusal is None else f"its agent refuses the key set: {node.key_set_refusal}"


def why_worse(before: Standing, now: Standing) -> str | None:
    """What has become worse on a node since its upgrade began; None: nothing."""
    if now.blocked_slots > before.blocked_slots:
        return f"{now.blocked_slots} slots wait for cleanup ({before.blocked_slots} before)"
    if slots := sorted(now.slots_out_of_service - before.slots_out_of_service):
        return f"slots out of service: {', '.join(map(str, slots))}"
    if allocations := sorted(map(str, now.unhealthy_allocations - before.unhealthy_allocations)):
        return f"allocations degraded or lost: {', '.join(allocations)}"
    if faults := sorted(now.faults - before.faults):
        return f"faults of the hardware: {', '.join(faults)}"
    return None


def environment_of(node: Node, version: str) -> Mapping[str, str]:
    """The environment in which a command for a node runs, beside that of this process."""
    return {
        "BERTH_NODE": node.name, "BERTH_NODE_ID": str(node.id), "BERTH_NODE_ADDRESS": node.address or node.name,
        "BERTH_NODE_VERSION": node.agent_version or "", "BERTH_UPGRADE_TO": version,
    }  # fmt: skip
