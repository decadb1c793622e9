"""Health of the machine's network ports."""

from __future__ import annotations

from node_agent.discovery.nics import nics
from node_agent.discovery.reading import Tree
from node_agent.wire.fields import INTEGER_MAX
from node_agent.wire.health import NicHealth
from node_agent.wire.topology import Nic

_NET = "sys/class/net"


def ports(tree: Tree) -> list[NicHealth] | None:
    """The ports that discovery lists; None if they cannot be listed."""
    found = nics(tree)
    return None if found is None else [_health(tree, nic) for nic in found]


def _health(tree: Tree, nic: Nic) -> NicHealth:
    port = f"{_NET}/{nic.name}"
    # The kernel refuses to read the carrier of a port that is switched off.
    is_on = ((tree.number(f"{port}/flags", INTEGER_MAX) or 0) & 1) == 1
    carrier = tree.number(f"{port}/carrier") if is_on else None
    return NicHealth(
        name=nic.name,
        address=nic.address,
        carrier=None if carrier is None else carrier == 1,
        carrier_losses=tree.number(f"{port}/carrier_down_count", INTEGER_MAX),
        receive_errors=tree.number(f"{port}/statistics/rx_errors", INTEGER_MAX),
        transmit_errors=tree.number(f"{port}/statistics/tx_errors", INTEGER_MAX),
    )
