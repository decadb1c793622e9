"""Frames that no node sends, or that another one sends than it may, and what guests send to nodes. Prints JSON.

They arrive in VXLAN packets, or tagged at the switch's port of a node.
"""

from __future__ import annotations

import json
import sys
from ipaddress import IPv4Address
from typing import Any

from node_agent.drivers.libvirt.network.links import bridge_mac
from tests.libvirt_driver.network.frames import MARK, arp
from tests.libvirt_driver.network.spanning.nodes import (
    GUESTS,
    KIND,
    STRANGER,
    TRUNK,
    UNDERLAYS,
    Fabric,
    fabric_with,
    scratch,
)
from tests.libvirt_driver.network.spanning.packets import (
    RAW_SENDER,
    SENDER,
    arrives,
    ethernet,
    ipv4,
    tagged,
    udp,
    vxlan,
)
from tests.libvirt_driver.network.stage import sh

A1, A2, A3, B1, B2 = (GUESTS[name].order for name in ("a1", "a2", "a3", "b1", "b2"))
N1, N2 = UNDERLAYS["n1"], UNDERLAYS["n2"]
HONEST = ethernet(A2.mac, A1.mac, ipv4(A2.address, A1.address, MARK))
"""A2 to A1."""
VXLAN_PORT = 4789


def from_a_node(node: str, vni: int, frame: bytes, at: str = "a1", to: IPv4Address = N1) -> bool:
    """Whether the frame, sent by this node into a network, arrives at a guest."""
    if KIND == "vlan":
        return arrives(at, node, RAW_SENDER, tagged(frame, 100 + vni).hex(), TRUNK)
    return arrives(at, node, SENDER, vxlan(vni, frame).hex(), str(to))


def at_the_wire(source: IPv4Address, interface: str) -> bool:
    """Whether the honest frame arrives from this source, sent by the fabric at one of the first node's interfaces."""
    target = sh(f"cat /sys/class/net/{interface}/address", "n1").strip()
    packet = ethernet("02:00:00:00:00:99", target, ipv4(source, N1, udp(vxlan(1, HONEST), VXLAN_PORT), 17))
    return arrives("a1", "", RAW_SENDER, packet.hex(), "fabric" if interface == "up0" else "side")


def sources() -> dict[str, bool]:
    """The honest frame, by where its packet comes from."""
    return {
        "its node": from_a_node("n2", 1, HONEST),
        "a node of other networks": from_a_node("n3", 2, ethernet(B2.mac, B1.mac, ipv4(B2.address, B1.address, MARK)), "b1"),
        "a stranger": at_the_wire(STRANGER, "up0"),
        "its node's address on another interface": at_the_wire(N2, "side0"),
        "its node's address on the interface of the underlay": at_the_wire(N2, "up0"),
        "its node to another address": arrives("a1", "n2", SENDER, vxlan(1, HONEST).hex(), "192.0.2.101"),
    }  # fmt: skip


STRANGE = "52:54:00:00:00:77"
FRAMES: dict[str, bytes] = {
    "honest": HONEST,
    "a mac of no guest": ethernet(STRANGE, A1.mac, ipv4(A2.address, A1.address, MARK)),
    "an address of no guest": ethernet(A2.mac, A1.mac, ipv4(IPv4Address("10.66.1.99"), A1.address, MARK)),
    "a dhcp answer of another port": ethernet(A2.mac, A1.mac, ipv4(A2.address, A1.address, udp(MARK, 68), 17)),
    "the gateway's address": ethernet(A2.mac, A1.mac, ipv4(A1.gateway, A1.address, MARK)),
    "the gateway's mac and address": ethernet(bridge_mac(1), A1.mac, ipv4(A1.gateway, A1.address, MARK)),
    "another network's address": ethernet(B2.mac, A1.mac, ipv4(B2.address, A1.address, MARK)),
    "honest arp": ethernet(A2.mac, A1.mac, arp(A2.mac, A2.address) + MARK, 0x0806),
    "arp of the gateway's address": ethernet(A2.mac, A1.mac, arp(A2.mac, A1.gateway) + MARK, 0x0806),
    "a vlan tag": ethernet(A2.mac, A1.mac, bytes.fromhex("00050800") + ipv4(A2.address, A1.address, MARK), 0x8100),
    "another protocol": ethernet(A2.mac, A1.mac, MARK, 0x88B5),
}


def to_the_node() -> bool:
    """Whether a frame of another node's guest reaches the node."""
    frame = ethernet(A2.mac, bridge_mac(1), ipv4(A2.address, N1, udp(MARK, 5300), 17))
    packet = (
        (RAW_SENDER, tagged(frame, 101).hex(), TRUNK) if KIND == "vlan" else (SENDER, vxlan(1, frame).hex(), str(N1))
    )
    return arrives("n1", "n2", *packet, interface=GUESTS["a1"].bridge)


def of_the_node() -> bool:
    """Whether a frame that the first node makes itself reaches guests of other nodes."""
    frame = ethernet(bridge_mac(1), "ff:ff:ff:ff:ff:ff", ipv4(A1.gateway, A2.address, MARK))
    return arrives("n2", "n1", RAW_SENDER, frame.hex(), GUESTS["a1"].bridge, interface="berthv1")


def by_a_guest() -> bool:
    """Whether a guest of tenant A gets a frame into tenant B's network by a VXLAN packet to another node."""
    frame = ethernet(B1.mac, B2.mac, ipv4(B1.address, B2.address, MARK))
    return arrives("b2", "a1", SENDER, vxlan(2, frame).hex(), str(N2))


def without(node: str, *parts: str) -> None:
    """Remove the rules that contain one of these texts."""
    for chain in ("inet berth from_guest", "inet berth underlay", "bridge berth input", "bridge berth output"):
        for line in sh(f"nft -a list chain {chain}", node).splitlines():
            if any(part in line for part in parts):
                sh(f"nft delete rule {chain} handle {line.split()[-1]}", node)


def of_packets(fabric: Fabric) -> dict[str, Any]:
    """By the sources of VXLAN packets."""
    # Another way to the first node, which no peer uses; and a second address of that node.
    sh("ip link add side type veth peer name side0 netns n1; ip link set side up")
    sh("ip addr add 203.0.113.1/24 dev side0; ip link set side0 up; ip addr add 192.0.2.101/32 dev up0", "n1")
    sh("for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$f; done", "n1")
    found: dict[str, Any] = {"sources": sources()}
    without("n1", "not from its interface")
    found["sources, any interface"] = sources()
    sh("nft flush chain inet berth underlay", "n1")
    found["sources, no rules"] = sources()
    fabric.nodes["n1"].tend()
    return found


def of_guests(fabric: Fabric) -> dict[str, Any]:
    """VXLAN packets of a guest."""
    n1 = fabric.nodes["n1"]
    found: dict[str, Any] = {"by a guest": by_a_guest()}
    without("n1", '"vxlan"')
    found["by a guest, networks closed"] = by_a_guest()
    n1.call("tend")
    without("n1", '"closed"')
    found["by a guest, port closed"] = by_a_guest()
    without("n1", '"vxlan"')
    found["by a guest, no rules"] = by_a_guest()
    return found


def everything() -> dict[str, Any]:
    """Each verdict with the rules, and without the rule that makes it."""
    with scratch() as directory:
        fabric = fabric_with(directory, egress=True)
        n1 = fabric.nodes["n1"]
        found: dict[str, Any] = {}
        try:
            if KIND == "vxlan":
                found |= of_packets(fabric)
            found["frames"] = {name: from_a_node("n2", 1, frame) for name, frame in FRAMES.items()}
            found["to the node"], found["of the node"] = to_the_node(), of_the_node()
            without("n1", "other nodes to node", "node to other nodes")
            found["to the node, no rules"], found["of the node, no rules"] = to_the_node(), of_the_node()
            sh("nft delete table bridge berth", "n1")
            found["frames, no rules"] = {name: from_a_node("n2", 1, frame) for name, frame in FRAMES.items()}
            n1.tend()
            # What the forged frames made A1 believe.
            sh("ip neigh flush all", "a1")
            if KIND == "vxlan":
                found |= of_guests(fabric)
        finally:
            fabric.end()
    return found


if __name__ == "__main__":
    json.dump(everything(), sys.stdout)
