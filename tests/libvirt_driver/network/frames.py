"""Frames that a guest sends by hand, and whether they arrive at another guest of its network."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from ipaddress import IPv4Address

from tests.libvirt_driver.network.stage import A1, A2

MARK = b"berth-test-frame"
BROADCAST = "ff:ff:ff:ff:ff:ff"
ALL_NODES = "33:33:00:00:00:01"
SENDER = """
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as it:
    it.bind(("eth0", 0))
    for frame in sys.argv[1:]: it.send(bytes.fromhex(frame))
"""
# Prints the numbers of those that arrive, until as many have come or, once the sender has ended, it is silent.
_RECEIVER = """
import select, socket, sys
mark, wanted, left = bytes.fromhex(sys.argv[1]), int(sys.argv[2]), [sys.stdin]
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as it:
    it.bind(("eth0", 3)); print("listening", flush=True); seen = 0
    while seen < wanted and (ready := select.select([it, *left], [], [], None if left else 2.0)[0]):
        if it not in ready: left = []; continue
        data, origin = it.recvfrom(2000)
        at = data.find(mark)
        # 4: PACKET_OUTGOING, an answer that quotes a frame.
        if at >= 0 and origin[2] != 4: seen += 1; print(data[at + len(mark)], flush=True)
"""


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def frame(kind: int, body: bytes, source: str = A1.order.mac, target: str = A2.order.mac) -> bytes:
    """An Ethernet frame."""
    return _mac(target) + _mac(source) + kind.to_bytes(2, "big") + body


def ipv4(source: IPv4Address, payload: bytes, protocol: int = 253) -> bytes:
    """An IPv4 packet to A2, with a right checksum."""
    head = bytes([0x45, 0]) + (20 + len(payload)).to_bytes(2, "big") + bytes([0, 0, 0, 0, 64, protocol])
    addresses = source.packed + A2.order.address.packed
    total = sum(int.from_bytes((head + addresses)[i : i + 2], "big") for i in range(0, 18, 2))
    total = (total & 0xFFFF) + (total >> 16)
    return head + (~total & 0xFFFF).to_bytes(2, "big") + addresses + payload


def arp(mac: str, address: IPv4Address, target: IPv4Address = A2.order.address, operation: int = 2) -> bytes:
    """An ARP reply that says where an address is, or with operation 1 a request for another one."""
    return (
        bytes.fromhex("000108000604")
        + operation.to_bytes(2, "big")
        + _mac(mac)
        + address.packed
        + _mac(A2.order.mac)
        + target.packed
    )


@dataclass(frozen=True)
class Forged:
    """A frame under test, by its place in the list."""

    name: str
    content: bytes


def frames() -> tuple[Forged, ...]:
    """One honest frame of each kind, and every kind of forged one, each with the mark and its number behind."""
    own, other = A1.order.address, A2.order.address
    gateway, strange = A1.order.gateway, "52:54:00:00:00:77"
    udp = (67).to_bytes(2, "big") + (68).to_bytes(2, "big") + (26).to_bytes(2, "big") + bytes(2)
    asks = (68).to_bytes(2, "big") + (67).to_bytes(2, "big") + (26).to_bytes(2, "big") + bytes(2)
    answers = (3999).to_bytes(2, "big") + (68).to_bytes(2, "big") + (26).to_bytes(2, "big") + bytes(2)
    serves = (547).to_bytes(2, "big") + (546).to_bytes(2, "big") + (26).to_bytes(2, "big") + bytes(2)
    known = [
        ("honest ipv4", frame(0x0800, ipv4(own, _end(0)))),
        ("honest arp", frame(0x0806, arp(A1.order.mac, own) + _end(1))),
        ("forged mac", frame(0x0800, ipv4(own, _end(2)), source=strange)),
        ("neighbour's mac", frame(0x0800, ipv4(own, _end(3)), source="52:54:0a:42:01:0d")),
        ("neighbour's address", frame(0x0800, ipv4(other, _end(4)))),
        ("gateway's address", frame(0x0800, ipv4(gateway, _end(5)))),
        ("no address", frame(0x0800, ipv4(IPv4Address(0), _end(6)))),
        ("arp of the gateway's address", frame(0x0806, arp(A1.order.mac, gateway) + _end(7))),
        ("arp of a forged mac", frame(0x0806, arp(strange, own) + _end(8))),
        ("arp for another network", frame(0x0806, arp(A1.order.mac, own, IPv4Address("10.99.0.1"), 1) + _end(9))),
        ("ipv6", frame(0x86DD, bytes.fromhex("60000000") + bytes(36) + _end(10))),
        ("vlan", frame(0x8100, bytes.fromhex("00050800") + ipv4(own, _end(11)))),
        ("dhcp server", frame(0x0800, ipv4(own, udp + _end(12), protocol=17))),
        ("other protocol", frame(0x88B5, _end(13))),
        ("broadcast of a forged address", frame(0x0800, ipv4(other, _end(14)), target=BROADCAST)),
        ("request to a dhcp server", frame(0x0800, ipv4(own, asks + _end(15), protocol=17), target=BROADCAST)),
        ("router advertisement", frame(0x86DD, _ipv6(58, bytes([134]) + bytes(15) + _end(16)), target=ALL_NODES)),
        ("dhcpv6 server", frame(0x86DD, _ipv6(17, serves + _end(17)), target=ALL_NODES)),
        ("dhcp answer of another port", frame(0x0800, ipv4(own, answers + _end(18), protocol=17), target=BROADCAST)),
    ]
    return tuple(Forged(name, content) for name, content in known)


def arrived() -> list[str]:
    """Send every frame from A1; the names of those that A2 received."""
    known = frames()
    receiver = subprocess.Popen(
        ["ip", "netns", "exec", "a2", sys.executable, "-Sc", _RECEIVER, MARK.hex(), str(len(known))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert receiver.stdout is not None
    assert receiver.stdout.readline() == "listening\n"
    sent = [one.content.hex() for one in known]
    subprocess.run(["ip", "netns", "exec", "a1", sys.executable, "-Sc", SENDER, *sent], check=True)
    said, _ = receiver.communicate(timeout=30)
    return [known[number].name for number in sorted({int(line) for line in said.split()})]


def _ipv6(protocol: int, payload: bytes) -> bytes:
    """An IPv6 packet of a link-local address to all nodes of the link."""
    addresses = bytes.fromhex("fe80" + "00" * 13 + "01" + "ff02" + "00" * 13 + "01")
    return bytes.fromhex("60000000") + len(payload).to_bytes(2, "big") + bytes([protocol, 255]) + addresses + payload


def _end(number: int) -> bytes:
    return MARK + bytes([number, 0])
