"""Uplinks: the port of each network's bridge that leads to other nodes, a VXLAN device (RFC 7348) without learning.

What is sent where is a list of static entries: each guest's MAC address at its node, and broadcasts to each node that has guests
of the network. Every call leads to the same state however often it runs. Raises NetworkError, an OSError.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from node_agent.drivers.libvirt.network.links import Link, no_ipv6_address, remove_link, switch_ipv6_off
from node_agent.drivers.libvirt.network.policy import Uplink
from node_agent.drivers.libvirt.network.programs import call
from node_agent.drivers.libvirt.network.rules import VXLAN_PORT, Guest, Remote

BROADCAST = "00:00:00:00:00:00"
"""The MAC address under which VXLAN devices keep where broadcasts go."""
Destinations = frozenset[tuple[str, str]]
"""MAC addresses, each with the underlay address of a node."""


def destinations() -> dict[str, Destinations]:
    """Where each interface of the node sends what, by the interface's name."""
    found: dict[str, set[tuple[str, str]]] = {}
    for one in json.loads(call("bridge", "-json", "fdb", "show") or "[]"):
        if "dst" in one:
            found.setdefault(one["ifname"], set()).add((one["mac"], one["dst"]))
    return {name: frozenset(entries) for name, entries in found.items()}


def wanted_destinations(vni: int, remotes: Iterable[Remote]) -> Destinations:
    """Where the network's uplink should send what."""
    own = [one for one in remotes if one.vni == vni]
    return frozenset({(BROADCAST, str(one.underlay)) for one in own} | {(one.mac, str(one.underlay)) for one in own})


def make_uplink(guest: Guest, uplink: Uplink, remotes: Iterable[Remote], there: dict[str, Link]) -> None:
    """The guest's network is connected with the nodes of these remote guests, and with no other."""
    name, vni = guest.uplink, guest.order.vni
    link = there.get(name)
    if link is not None and not _is_ours(link, vni, uplink):
        remove_link(name)
        link = None
    if link is None:
        own = ("id", str(vni), "local", str(uplink.underlay), "dstport", str(VXLAN_PORT), "nolearning", "ttl", "64")
        call("ip", "link", "add", "name", name, "type", "vxlan", *own)
    call("ip", "link", "set", "dev", name, "mtu", str(uplink.mtu), "arp", "off", *no_ipv6_address())
    switch_ipv6_off(name)
    _send_to(name, wanted_destinations(vni, remotes))
    if link is None or link.bridge != guest.bridge:
        call("ip", "link", "set", "dev", name, "master", guest.bridge)
    call("ip", "link", "set", "dev", name, "up")


def is_connected(
    guest: Guest, uplink: Uplink, remotes: Iterable[Remote], there: dict[str, Link], found: dict[str, Destinations]
) -> bool:
    """Whether the uplink of the guest's network is as `make_uplink` leaves it. `found`: what `destinations` returned."""
    link = there.get(guest.uplink)
    if link is None or not link.is_up or link.mtu != uplink.mtu or link.bridge != guest.bridge:
        return False
    wanted = wanted_destinations(guest.order.vni, remotes)
    return _is_ours(link, guest.order.vni, uplink) and found.get(link.name, frozenset()) == wanted


def _is_ours(link: Link, vni: int, uplink: Uplink) -> bool:
    made = {"id": vni, "local": str(uplink.underlay), "port": VXLAN_PORT, "learning": False}
    return link.kind == "vxlan" and all(link.settings.get(name) == value for name, value in made.items())


def _send_to(name: str, wanted: Destinations) -> None:
    """Removals first: a MAC address has one destination."""
    there = destinations().get(name, frozenset())
    lines = [f"fdb del {mac} dev {name} dst {node}" for mac, node in sorted(there - wanted)]
    for mac, node in sorted(wanted - there):
        lines.append(f"fdb {'append' if mac == BROADCAST else 'add'} {mac} dev {name} dst {node}")
    if lines:
        call("bridge", "-batch", "-", text="".join(f"{line}\n" for line in lines))
