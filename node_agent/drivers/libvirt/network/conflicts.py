"""Which guests cannot have their networks on one node."""

from __future__ import annotations

from collections.abc import Iterable

from node_agent.drivers.libvirt.network.rules import Guest


def conflict(guest: Guest, others: Iterable[Guest]) -> str | None:
    """Why the guest cannot have its network beside these guests; None if it can. Rules with such a pair nftables may refuse."""
    order = guest.order
    for other in others:
        if other.allocation_id == guest.allocation_id:
            continue
        theirs = f"network {other.order.network_id} of allocation {other.allocation_id}"
        if other.order.network_id == order.network_id:
            if (other.order.vni, other.order.subnet) != (order.vni, order.subnet):
                return f"network {order.network_id} has another VNI or subnet than {theirs}"
            if None not in (order.vlan, other.order.vlan) and order.vlan != other.order.vlan:
                return f"network {order.network_id} has VLAN {order.vlan}, and VLAN {other.order.vlan} by {theirs}"
        elif other.order.vni == order.vni:
            return f"network {order.network_id} has VNI {order.vni}, as {theirs}"
        elif order.vlan is not None and other.order.vlan == order.vlan:
            return f"network {order.network_id} has VLAN {order.vlan}, as {theirs}"
        elif order.subnet.overlaps(other.order.subnet):
            return (
                f"network {order.network_id} has subnet {order.subnet}, which overlaps {other.order.subnet} of {theirs}"
            )
        if order.address == other.order.address:
            return f"address {order.address} is that of allocation {other.allocation_id}"
    return None
