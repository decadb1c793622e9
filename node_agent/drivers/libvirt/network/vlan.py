"""VLANs as uplinks (IEEE 802.1Q): one bridge has an access port for each network, and the trunk, at which VLANs are tagged.

A network's uplink is one end of a veth pair; the other end is the network's access port, untagged in its VLAN. The trunk carries
exactly the VLANs of the networks that have guests here, and nothing untagged. The bridge has no VLAN itself, so the node reaches
none. Each VLAN has two ports: the bridge learns no addresses, which nothing can forge then. Every call leads to the same state
however often it runs. Raises NetworkError, an OSError.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from node_agent.drivers.libvirt.network.links import Link, all_links, no_ipv6_address, remove_link, switch_ipv6_off
from node_agent.drivers.libvirt.network.names import TRUNK_BRIDGE
from node_agent.drivers.libvirt.network.policy import Trunk
from node_agent.drivers.libvirt.network.programs import NetworkError, call
from node_agent.drivers.libvirt.network.rules import Guest

Tags = frozenset[tuple[int, bool, bool]]
"""VLANs of a bridge's port, each with whether untagged frames that arrive are in it, and whether its own are sent untagged."""
_BRIDGE = {"vlan_filtering": 1, "vlan_default_pvid": 0, "stp_state": 0, "mcast_snooping": 0, "no_linklocal_learn": 1}
_PORT = {"learning": False, "isolated": False, "hairpin": False}


def vlans_of(guests: Iterable[Guest]) -> dict[int, int]:
    """The VLAN of each network of these guests that has one, by VNI. An order of a guest from before may name none."""
    return {guest.order.vni: guest.order.vlan for guest in guests if guest.order.vlan is not None}


def tags() -> dict[str, Tags]:
    """The VLANs of each port of a bridge that filters them, by the port's name. Raises NetworkError."""
    return read_tags(call("bridge", "-json", "vlan", "show"))


def read_tags(shown: str) -> dict[str, Tags]:
    """The same from what `bridge -json vlan show` has shown, with or without ranges."""
    found: dict[str, Tags] = {}
    for one in json.loads(shown or "[]"):
        vlans = [(of["vlan"], of.get("vlanEnd", of["vlan"]), of.get("flags", [])) for of in one.get("vlans", [])]
        found[one["ifname"]] = frozenset(
            (vlan, "PVID" in flags, "Egress Untagged" in flags)
            for first, last, flags in vlans
            for vlan in range(first, last + 1)
        )
    return found


def make_trunk_bridge(trunk: Trunk) -> None:
    """The bridge of the trunk is there, without a network. Raises NetworkError, also for a kernel that filters no VLANs."""
    there = all_links().get(TRUNK_BRIDGE)
    if there is not None and not _filters(there):
        remove_link(TRUNK_BRIDGE)
        there = None
    if there is None:
        settings = [text for name, value in _BRIDGE.items() for text in (name, str(value))]
        try:
            call("ip", "link", "add", "name", TRUNK_BRIDGE, "type", "bridge", *settings)
        except NetworkError as error:
            raise NetworkError(
                f"this kernel makes no bridge that filters VLANs (BRIDGE_VLAN_FILTERING): {error}"
            ) from error
    call("ip", "-4", "address", "flush", "dev", TRUNK_BRIDGE)
    for vlan, _, _ in sorted(tags().get(TRUNK_BRIDGE, frozenset())):
        call("bridge", "vlan", "del", "dev", TRUNK_BRIDGE, "vid", str(vlan), "self")
    call("ip", "link", "set", "dev", TRUNK_BRIDGE, "arp", "off", *no_ipv6_address())
    switch_ipv6_off(TRUNK_BRIDGE)
    call("ip", "link", "set", "dev", TRUNK_BRIDGE, "up")


def trunk_problem(trunk: Trunk, there: Mapping[str, Link]) -> str | None:
    """Why the trunk's interface cannot be used; None if it can. `there`: every interface of the node."""
    link = there.get(trunk.interface)
    setting = f"BERTH_LIBVIRT_NETWORK_UPLINK_INTERFACE: {trunk.interface}"
    if link is None:
        return f"{setting} is not there"
    if link.bridge not in (None, TRUNK_BRIDGE):
        return f"{setting} is a port of {link.bridge}"
    addresses = (*link.addresses, *link.global_ipv6)
    if link.bridge is None and addresses:
        return f"{setting} has the address {addresses[0]}"
    if link.mtu < trunk.mtu:
        return f"{setting} has an MTU of {link.mtu}, below the {trunk.mtu} of guests"
    return None


def join_trunk(trunk: Trunk, vlans: Iterable[int]) -> None:
    """The trunk carries these VLANs and no other, and nothing else is a port of its bridge but access ports."""
    there = all_links()
    for name, link in there.items():
        if link.bridge == TRUNK_BRIDGE and name != trunk.interface and link.kind != "veth":
            call("ip", "link", "set", "dev", name, "nomaster")
    if (problem := trunk_problem(trunk, there)) is not None:
        raise NetworkError(problem)
    # The node itself says nothing at the interface.
    call("ip", "link", "set", "dev", trunk.interface, "arp", "off", *no_ipv6_address())
    switch_ipv6_off(trunk.interface)
    _make_port(trunk.interface, there[trunk.interface])
    _tag(trunk.interface, frozenset((vlan, False, False) for vlan in vlans))
    call("ip", "link", "set", "dev", trunk.interface, "up")


def make_access(guest: Guest, vlan: int, trunk: Trunk) -> None:
    """The guest's network is connected with its VLAN. Its bridge is there."""
    uplink, access = guest.uplink, guest.access
    there = all_links()
    if not _is_pair(there.get(uplink), there.get(access)):
        for name in (uplink, access):
            remove_link(name)
        call("ip", "link", "add", "name", uplink, "type", "veth", "peer", "name", access)
        there = all_links()
    for name in (uplink, access):
        call("ip", "link", "set", "dev", name, "mtu", str(trunk.mtu), "arp", "off", *no_ipv6_address())
        switch_ipv6_off(name)
    # Tagged before it is up, so that no frame is in another VLAN.
    _make_port(access, there[access])
    _tag(access, frozenset({(vlan, True, True)}))
    if there[uplink].bridge != guest.bridge:
        call("ip", "link", "set", "dev", uplink, "master", guest.bridge)
    for name in (uplink, access):
        call("ip", "link", "set", "dev", name, "up")


def is_trunk_whole(trunk: Trunk, vlans: Iterable[int], there: Mapping[str, Link], found: Mapping[str, Tags]) -> bool:
    """Whether bridge and trunk are as the functions above leave them; of an interface that cannot be used nothing is expected.

    `there`: every interface of the node; `found`: what `tags` returned.
    """
    bridge, link = there.get(TRUNK_BRIDGE), there.get(trunk.interface)
    if bridge is None or not (_filters(bridge) and bridge.is_up) or bridge.addresses or found.get(TRUNK_BRIDGE):
        return False
    if trunk_problem(trunk, there) is not None:
        return True
    assert link is not None, "an interface without a problem is there"
    ports = {name for name, one in there.items() if one.bridge == TRUNK_BRIDGE and one.kind != "veth"}
    carried = frozenset((vlan, False, False) for vlan in vlans)
    return ports - {trunk.interface} == set() and _is_port(link) and found.get(link.name, frozenset()) == carried


def is_access_whole(
    guest: Guest, vlan: int, trunk: Trunk, there: Mapping[str, Link], found: Mapping[str, Tags]
) -> bool:
    """Whether the guest's network is connected as `make_access` leaves it; arguments as of `is_trunk_whole`."""
    uplink, access = there.get(guest.uplink), there.get(guest.access)
    if uplink is None or access is None or not _is_pair(uplink, access):
        return False
    ends = all(one.is_up and one.mtu == trunk.mtu for one in (uplink, access))
    tagged = found.get(access.name, frozenset()) == frozenset({(vlan, True, True)})
    return ends and uplink.bridge == guest.bridge and _is_port(access) and tagged


def _filters(link: Link) -> bool:
    return link.kind == "bridge" and all(link.settings.get(name) == value for name, value in _BRIDGE.items())


def _is_pair(uplink: Link | None, access: Link | None) -> bool:
    return uplink is not None and access is not None and uplink.kind == "veth" and uplink.peer == access.name


def _is_port(link: Link) -> bool:
    settings = all(link.port.get(name, value) == value for name, value in _PORT.items())
    return link.bridge == TRUNK_BRIDGE and link.is_up and settings


def _make_port(name: str, link: Link) -> None:
    if link.bridge != TRUNK_BRIDGE:
        call("ip", "link", "set", "dev", name, "master", TRUNK_BRIDGE)
    settings = [text for setting, value in _PORT.items() for text in (setting, "on" if value else "off")]
    call("bridge", "link", "set", "dev", name, *settings)


def _tag(name: str, wanted: Tags) -> None:
    """Removals first: a port has one VLAN for untagged frames."""
    there = tags().get(name, frozenset())
    lines = [f"vlan del dev {name} vid {vlan}" for vlan, _, _ in sorted(there - wanted)]
    for vlan, pvid, untagged in sorted(wanted - there):
        lines.append(f"vlan add dev {name} vid {vlan}{' pvid' if pvid else ''}{' untagged' if untagged else ''}")
    if lines:
        call("bridge", "-batch", "-", text="".join(f"{line}\n" for line in lines))
