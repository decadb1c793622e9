"""Bridges, taps and uplinks. Every call leads to the same state however often it runs. Raises NetworkError, an OSError."""

from __future__ import annotations

import json
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from uuid import UUID

import structlog

from berth.process.json_objects import JsonMapping
from node_agent.drivers.libvirt.network.names import (
    ACCESS_PREFIX,
    BRIDGE_PREFIX,
    TAP_PREFIX,
    TRUNK_BRIDGE,
    UPLINK_PREFIX,
)
from node_agent.drivers.libvirt.network.programs import NetworkError, call
from node_agent.drivers.libvirt.network.rules import Guest
from node_agent.wire.networks import NetworkOrder

log = structlog.get_logger("node_agent.network")


@dataclass(frozen=True)
class Link:
    """An interface of a tenant network. `alias`: of a tap, the allocation that it belongs to. `addresses`: of IPv4.

    `kind` and `settings`: those of the kernel's driver, for example `vxlan` with its VNI as `id`. `port`: those of a port of a
    bridge. `peer`: the other end of a veth pair.
    """

    name: str
    alias: str
    bridge: str | None
    is_up: bool
    addresses: tuple[str, ...]
    mtu: int
    kind: str
    settings: JsonMapping
    port: JsonMapping
    peer: str | None
    global_ipv6: tuple[str, ...] = ()
    """Its IPv6 addresses other than link-local ones."""


def links() -> dict[str, Link]:
    """The interfaces of tenant networks, by name."""
    own = (BRIDGE_PREFIX, TAP_PREFIX, UPLINK_PREFIX, ACCESS_PREFIX, TRUNK_BRIDGE)
    return {name: link for name, link in all_links().items() if name.startswith(own)}


def all_links() -> dict[str, Link]:
    """Every interface of the node, by name."""
    # Without -details no alias is shown.
    return read_links(call("ip", "-json", "-details", "address", "show"))


def read_links(shown: str) -> dict[str, Link]:
    """The same from what `ip -json -details address show` has shown."""
    return {
        one["ifname"]: Link(
            one["ifname"],
            one.get("ifalias", ""),
            one.get("master"),
            "UP" in one["flags"],
            tuple(f"{of['local']}/{of['prefixlen']}" for of in one.get("addr_info", []) if of.get("family") == "inet"),
            one["mtu"],
            one.get("linkinfo", {}).get("info_kind", ""),
            one.get("linkinfo", {}).get("info_data", {}),
            one.get("linkinfo", {}).get("info_slave_data", {}),
            one.get("link"),
            tuple(
                f"{of['local']}/{of['prefixlen']}"
                for of in one.get("addr_info", [])
                if of.get("family") == "inet6" and of.get("scope") != "link"
            ),
        )
        for one in json.loads(shown or "[]")
        if "ifname" in one
    }


def make_bridge(name: str, order: NetworkOrder, there: dict[str, Link]) -> None:
    """The bridge is up and has the gateway's address and no other. Refuses a subnet that has networks of the node."""
    mac, gateway = bridge_mac(order.vni), gateway_address(order)
    if name not in there or there[name].addresses != (gateway,):
        _require_apart(name, order)
    if name not in there:
        call("ip", "link", "add", "name", name, "address", mac, "type", "bridge")
    # Frames to link-local addresses skip the rules: the bridge learns no address from them.
    call(
        "ip", "link", "set", "dev", name, "type", "bridge", "stp_state", "0", "mcast_snooping", "0", "no_linklocal_learn", "1"
    )  # fmt: skip
    if name not in there or there[name].addresses != (gateway,):
        call("ip", "-4", "address", "flush", "dev", name)
        call("ip", "address", "add", gateway, "dev", name)
    # No IPv6 address of the node in a tenant's network.
    call("ip", "link", "set", "dev", name, "address", mac, *no_ipv6_address())
    switch_ipv6_off(name)
    call("ip", "link", "set", "dev", name, "up")


def make_tap(guest: Guest, there: dict[str, Link]) -> None:
    """The guest's tap is up and a port of its bridge. Only processes with CAP_NET_ADMIN, as libvirtd, can attach to it."""
    link = there.get(guest.tap)
    if link is None:
        # Without an owner every user could attach.
        call("ip", "tuntap", "add", "dev", guest.tap, "mode", "tap", "user", "0")
    elif link.alias not in ("", str(guest.allocation_id)):
        raise NetworkError(f"the interface {guest.tap} belongs to allocation {link.alias}")
    # Without ARP on the tap the node answers nothing that a guest asks past its bridge.
    owned = ("alias", str(guest.allocation_id), "arp", "off")
    call("ip", "link", "set", "dev", guest.tap, *owned, *no_ipv6_address())
    switch_ipv6_off(guest.tap)
    if link is None or link.bridge != guest.bridge:
        call("ip", "link", "set", "dev", guest.tap, "master", guest.bridge)
    call("ip", "link", "set", "dev", guest.tap, "up")


def remove_link(name: str) -> None:
    """The interface is gone."""
    if name in links():
        call("ip", "link", "delete", "dev", name)


def is_complete(guest: Guest, there: dict[str, Link]) -> bool:
    """Whether the guest's tap is a port of its bridge, both are up, and the bridge has the gateway's address alone."""
    tap, bridge = there.get(guest.tap), there.get(guest.bridge)
    if tap is None or bridge is None or not (tap.is_up and bridge.is_up):
        return False
    owner = str(guest.allocation_id)
    return (tap.bridge, tap.alias, bridge.addresses) == (guest.bridge, owner, (gateway_address(guest.order),))


def gateway_address(order: NetworkOrder) -> str:
    """The address of a network's bridge, with its prefix."""
    return f"{order.gateway}/{order.subnet.prefixlen}"


def owner_of(link: Link) -> UUID | None:
    """The allocation of a tap; None if its alias names none."""
    try:
        return UUID(link.alias)
    except ValueError:
        return None


def bridge_mac(vni: int) -> str:
    """The MAC address of a network's gateway: the same on each node, locally administered."""
    return f"02:62:72:{vni >> 16:02x}:{vni >> 8 & 255:02x}:{vni & 255:02x}"


def _require_apart(name: str, order: NetworkOrder) -> None:
    """Raise NetworkError if the order's subnet overlaps an address or a route of an interface other than `name`."""
    addresses = json.loads(call("ip", "-json", "-4", "address", "show") or "[]")
    routes = json.loads(call("ip", "-json", "-4", "route", "show") or "[]")
    taken = [
        (one["ifname"], f"{of['local']}/{of['prefixlen']}")
        for one in addresses
        for of in one.get("addr_info", [])
        if "local" in of
    ]
    for one in routes:
        devices = {one.get("dev"), *(hop.get("dev") for hop in one.get("nexthops", []))} - {None}
        taken += [(device, one["dst"]) for device in sorted(devices) if one["dst"] != "default"]
    for device, network in taken:
        if device != name and order.subnet.overlaps(theirs := IPv4Network(network, strict=False)):
            raise NetworkError(f"subnet {order.subnet} of network {order.network_id} overlaps {theirs} of {device}")


def switch_ipv6_off(name: str) -> None:
    """The node reads no IPv6 from the interface. Where the setting is closed the rules alone see to that; a check says so."""
    setting = Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6")
    try:
        if setting.exists() and setting.read_text().strip() != "1":
            setting.write_text("1")
    except OSError as error:
        log.warning("ipv6_not_switched_off", interface=name, why=str(error))


def no_ipv6_address() -> tuple[str, ...]:
    """Arguments of `ip link set`: the node gives the interface no IPv6 address."""
    return ("addrgenmode", "none") if Path("/proc/sys/net/ipv6").exists() else ()
