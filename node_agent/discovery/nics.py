"""Network ports of the machine."""

from __future__ import annotations

import re

from node_agent.discovery.reading import Tree, pci_address
from node_agent.wire.topology import NAME_MAX, NICS_MAX, Nic

_NET = "sys/class/net"
_MAC = re.compile(r"^[0-9a-f]{2}(:[0-9a-f]{2}){5,19}$")
_SPEED_MAX = 10_000_000


def nics(tree: Tree) -> list[Nic] | None:
    """Interfaces with a device, by address and name; virtual functions, bridges and taps are left out."""
    names = tree.names(_NET)
    if names is None:
        return None
    found = []
    for name in names:
        port = f"{_NET}/{name}"
        if len(name) <= NAME_MAX and tree.has(f"{port}/device") and not tree.has(f"{port}/device/physfn"):
            found.append(_nic(tree, name))
    if len(found) > NICS_MAX:
        tree.gaps.add("nics", f"{len(found)} were found, the first {NICS_MAX} are listed")
    return sorted(found, key=lambda nic: (nic.address or "", nic.name))[:NICS_MAX]


def _nic(tree: Tree, name: str) -> Nic:
    port = f"{_NET}/{name}"
    mac = (tree.line(f"{port}/address") or "").lower()
    state = tree.line(f"{port}/operstate")
    is_up = {"up": True, "down": False, "lowerlayerdown": False, "notpresent": False}.get(state or "")
    return Nic(
        name=name,
        address=pci_address(tree.link_name(f"{port}/device")),
        mac=mac if _MAC.match(mac) else None,
        driver=tree.link_name(f"{port}/device/driver"),
        numa_node=tree.number(f"{port}/device/numa_node"),
        link_up=is_up,
        # The kernel refuses to name the speed of a port that is down.
        speed_mbps=tree.number(f"{port}/speed", _SPEED_MAX) if is_up else None,
    )
