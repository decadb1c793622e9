"""Frames with tags that guests and the switch send, what the trunk carries, and an interface that cannot be used. Prints JSON.

Two guards keep VLANs apart: the VLAN table of the trunk's bridge, and the rules. Each is tried without the other, and neither.
"""

from __future__ import annotations

import json
import subprocess
import sys
from ipaddress import IPv4Address
from typing import Any

from node_agent.drivers.libvirt.network.names import TRUNK_BRIDGE
from tests.libvirt_driver.network.frames import BROADCAST, MARK
from tests.libvirt_driver.network.spanning.nodes import GUESTS, TRUNK, UNDERLAYS, Fabric, Node, fabric_with, scratch
from tests.libvirt_driver.network.spanning.packets import RAW_SENDER, arrives, ethernet, ipv4, tagged, udp
from tests.libvirt_driver.network.stage import reached, sh

A1, A2, B1, B2 = (GUESTS[name].order for name in ("a1", "a2", "b1", "b2"))
OWN, OTHER, NO_NETWORKS, NATIVE = 101, 102, 150, 1
HONEST = ethernet(A1.mac, A2.mac, ipv4(A1.address, A2.address, MARK))
"""A1 to A2."""
INTO_B = ethernet(A1.mac, BROADCAST, ipv4(A1.address, B2.address, MARK))
NATIVE_HOST = IPv4Address("198.51.100.99")
# Prints the VLAN of each frame that the node sends, 0 for an untagged one; ends with its input. The kernel takes a tag out.
_CAPTURE = """
import select, socket, struct, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as it:
    it.setsockopt(263, 8, 1); it.bind((sys.argv[1], 3)); print("listening", flush=True); seen = set()
    while sys.stdin not in (ready := select.select([it, sys.stdin], [], [])[0]):
        data, ancillary, _, origin = it.recvmsg(4000, 100)
        status, tci = [struct.unpack("IIIHHHH", one[2])[:1] + struct.unpack("IIIHHHH", one[2])[5:6] for one in ancillary][0]
        vlan = tci & 4095 if status & 16 else int.from_bytes(data[14:16], "big") & 4095 if data[12:14] == bytes([129, 0]) else 0
        # 4: PACKET_OUTGOING, what the switch sends.
        if origin[2] != 4: seen.add(vlan)
    print(*sorted(seen))
"""
# Whether a datagram with the mark arrives at the port, at any address of the host.
_DATAGRAM = """
import select, socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
    it.bind(("0.0.0.0", 5300)); print("listening", flush=True)
    sys.stdin.readline()
    if select.select([it], [], [], 1.5)[0]: print("arrived")
"""
TAGS: dict[str, tuple[int, ...]] = {
    "its own vlan": (OWN,), "another network's vlan": (OTHER,), "a vlan of no network": (NO_NETWORKS,),
    "the native vlan": (NATIVE,), "a priority tag": (0,), "its own vlan, then another's": (OWN, OTHER),
    "the native vlan, then another's": (NATIVE, OTHER),
    "another's vlan twice": (OTHER, OTHER),
}  # fmt: skip
"""Of frames of A1, the outermost tag first."""


def with_tags(frame: bytes, tags: tuple[int, ...], kind: int = 0x8100) -> bytes:
    """The frame with these tags."""
    for tag in reversed(tags):
        frame = tagged(frame, tag, kind)
    return frame


def hops() -> dict[str, list[bool]]:
    """Whether each frame of A1 arrives at B2, and at the host in the native VLAN."""
    found = {}
    for name, tags in TAGS.items():
        frame = with_tags(INTO_B, tags).hex()
        found[name] = [
            arrives(at, "a1", RAW_SENDER, frame, "eth0", interface=card)
            for at, card in (("b2", "eth0"), (None, "switch"))
        ]
    provider = with_tags(INTO_B, (OTHER,), 0x88A8).hex()
    found["a provider's tag"] = [arrives("b2", "a1", RAW_SENDER, provider, "eth0"), False]
    return found


def from_the_switch() -> dict[str, bool]:
    """Whether frames that the switch sends to the first node arrive at A1."""
    own = ethernet(A2.mac, A1.mac, ipv4(A2.address, A1.address, MARK))
    cases = {
        "tagged": (OWN,), "untagged": (), "of another vlan": (OTHER,), "of no network": (NO_NETWORKS,),
        "tagged twice": (OWN, OWN), "another's vlan, then its own": (OTHER, OWN), "a priority tag": (0,),
    }  # fmt: skip
    return {name: arrives("a1", "", RAW_SENDER, with_tags(own, tags).hex(), "n1") for name, tags in cases.items()}


def to_the_node() -> bool:
    """Whether an untagged datagram to the trunk's interface reaches a service of the node."""
    target = sh(f"cat /sys/class/net/{TRUNK}/address", "n1").strip()
    frame = ethernet("02:00:00:00:00:99", target, ipv4(NATIVE_HOST, UNDERLAYS["n1"], udp(MARK, 5300), 17))
    service = subprocess.Popen(
        ["ip", "netns", "exec", "n1", sys.executable, "-Sc", _DATAGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert service.stdout is not None
    assert service.stdout.readline() == "listening\n"
    subprocess.run([sys.executable, "-Sc", RAW_SENDER, frame.hex(), "n1"], check=True)
    said, _ = service.communicate("sent\n", timeout=30)
    return "arrived" in said


def carried(fabric: Fabric) -> list[int]:
    """The VLANs of all frames that the first node sends to the switch while guests talk, and hop; 0 for untagged ones."""
    capture = subprocess.Popen(
        [sys.executable, "-Sc", _CAPTURE, "n1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert capture.stdout is not None
    assert capture.stdout.readline() == "listening\n"
    for client, server in (("a1", "a2"), ("b1", "b2")):
        reached(client, str(GUESTS[server].order.address), 22)
    for tags in TAGS.values():
        arrives("a2", "a1", RAW_SENDER, with_tags(INTO_B, tags).hex(), "eth0")
    reached("n1", str(A1.address), 22)
    fabric.nodes["n1"].tend()
    said, _ = capture.communicate("", timeout=30)
    return [int(one) for one in said.split()]


def unfiltered(node: str) -> None:
    """The node's bridge of the trunk is one broadcast domain."""
    sh(f"ip link set {TRUNK_BRIDGE} type bridge vlan_filtering 0", node)


def unusable(n1: Node) -> dict[str, Any]:
    """What becomes of the trunk's interface when it is another bridge's, has an address, or is gone."""
    found: dict[str, Any] = {}
    sh(f"ip link add foreign type bridge; ip link set {TRUNK} master foreign", "n1")
    found["a port of another bridge"] = [n1.tend(), n1.tend(), "master foreign" in sh(f"ip link show {TRUNK}", "n1")]
    n1.call("out", "b1")
    found["a new guest"] = n1.call("in", "b1")
    n1.call("forget", "b1")
    sh("ip link delete foreign", "n1")
    found["free again"] = [n1.tend(), f"master {TRUNK_BRIDGE}" in sh(f"ip link show {TRUNK}", "n1"), said("a1", "a2")]
    n1.kill()
    sh(f"ip link set {TRUNK} nomaster; ip addr add 203.0.113.7/24 dev {TRUNK}", "n1")
    n1.start()
    found["with an address"] = [said("a1", "a2"), "203.0.113.7/24" in sh(f"ip addr show {TRUNK}", "n1"), n1.tend()]
    sh(f"ip addr del 203.0.113.7/24 dev {TRUNK}", "n1")
    found["without it"] = [n1.tend(), said("a1", "a2"), n1.tend()]
    sh(f"ip link set {TRUNK} down; ip link set {TRUNK} name renamed0", "n1")
    found["renamed"] = [said("a1", "a2"), n1.tend(), n1.tend()]
    sh(f"ip link set renamed0 name {TRUNK}", "n1")
    found["named again"] = [n1.tend(), said("a1", "a2"), n1.tend()]
    return found


def said(client: str, server: str) -> str:
    """What the server of a guest says to another guest; empty if nothing arrives."""
    return reached(client, str(GUESTS[server].order.address), 22)


def ends(n1: Node) -> dict[str, Any]:
    """What is left of VLANs once guests leave, and after a start with networks that end at the node."""
    found: dict[str, Any] = {}
    n1.call("out", "a1")
    found["one left"] = sh(f"bridge vlan show dev {TRUNK} | grep -o '[0-9][0-9]*$'", "n1").split()
    n1.kill()
    n1.kind = "none"
    n1.start()
    found["another setting"] = [
        sh("ip -br link | grep -o 'berth[a-z-]*' | sort -u", "n1").split(),
        sh(f"ip -d link show {TRUNK}", "n1").count("master"),
    ]
    return found


def everything() -> dict[str, Any]:
    """All of it, on one stage."""
    with scratch() as directory:
        fabric = fabric_with(directory)
        n1 = fabric.nodes["n1"]
        found: dict[str, Any] = {}
        try:
            found["carried"] = carried(fabric)
            found["hops"], found["from the switch"], found["to the node"] = hops(), from_the_switch(), to_the_node()
            sh("nft delete table bridge berth", "n1")
            sh("nft delete table bridge berth", "n2")
            found["hops, no rules"] = hops()
            n1.tend()
            fabric.nodes["n2"].tend()
            unfiltered("n1")
            unfiltered("n2")
            found["hops, no table"], found["from the switch, no table"] = hops(), from_the_switch()
            sh("nft delete table bridge berth", "n1")
            sh("nft delete table bridge berth", "n2")
            found["hops, neither"], found["from the switch, neither"] = hops(), from_the_switch()
            sh(f"ip link set {TRUNK} nomaster; nft flush ruleset", "n1")
            found["to the node, neither"] = to_the_node()
            found["repaired"] = [n1.tend(), fabric.nodes["n2"].tend(), said("a1", "a2"), said("a1", "b2")]
            found["unusable"] = unusable(n1)
            found["ends"] = ends(n1)
        finally:
            fabric.end()
    return found


if __name__ == "__main__":
    json.dump(everything(), sys.stdout)
