"""VXLAN packets made by hand, and whether the frames in them arrive at a guest."""

from __future__ import annotations

import subprocess
import sys
from ipaddress import IPv4Address

from tests.libvirt_driver.network.frames import MARK

RECEIVER = """
import select, socket, sys
mark, left = bytes.fromhex(sys.argv[1]), [sys.stdin]
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as it:
    it.bind((sys.argv[2], 3)); print("listening", flush=True)
    # Once the sender has ended, for a while longer.
    while ready := select.select([it, *left], [], [], None if left else 1.5)[0]:
        if it not in ready: left = []; continue
        data, origin = it.recvfrom(4000)
        # 4: PACKET_OUTGOING
        if mark in data and origin[2] != 4: print("arrived"); break
"""
SENDER = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it: it.sendto(bytes.fromhex(sys.argv[1]), (sys.argv[2], 4789))
"""
RAW_SENDER = """
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as it: it.bind((sys.argv[2], 0)); it.send(bytes.fromhex(sys.argv[1]))
"""


def mac(text: str) -> bytes:
    """Its six octets."""
    return bytes.fromhex(text.replace(":", ""))


def checksum(data: bytes) -> bytes:
    """RFC 1071."""
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF).to_bytes(2, "big")


def ipv4(source: IPv4Address, target: IPv4Address, payload: bytes, protocol: int = 253) -> bytes:
    """An IPv4 packet that must not be fragmented."""
    head = bytes([0x45, 0]) + (20 + len(payload)).to_bytes(2, "big") + bytes([0, 0, 0x40, 0, 64, protocol, 0, 0])
    head += source.packed + target.packed
    return head[:10] + checksum(head) + head[12:] + payload


def ethernet(source: str, target: str, payload: bytes, kind: int = 0x0800) -> bytes:
    """A frame."""
    return mac(target) + mac(source) + kind.to_bytes(2, "big") + payload


def tagged(frame: bytes, vlan: int, kind: int = 0x8100) -> bytes:
    """The frame with a tag (IEEE 802.1Q) before all others that it has."""
    return frame[:12] + kind.to_bytes(2, "big") + vlan.to_bytes(2, "big") + frame[12:]


def vxlan(vni: int, frame: bytes) -> bytes:
    """The payload of a UDP packet (RFC 7348 §5)."""
    return bytes([8, 0, 0, 0]) + vni.to_bytes(3, "big") + bytes(1) + frame


def udp(payload: bytes, port: int) -> bytes:
    """A UDP packet without a checksum."""
    return port.to_bytes(2, "big") * 2 + (8 + len(payload)).to_bytes(2, "big") + bytes(2) + payload


def arrives(at: str | None, *sending: str, interface: str = "eth0") -> bool:
    """Run a sender in a namespace: the namespace, the program, its arguments. Whether the mark arrives in namespace `at`."""
    receiver = subprocess.Popen(
        [*_in(at), sys.executable, "-Sc", RECEIVER, MARK.hex(), interface],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert receiver.stdout is not None
    assert receiver.stdout.readline() == "listening\n"
    namespace, program, *arguments = sending
    subprocess.run([*_in(namespace or None), sys.executable, "-Sc", program, *arguments], check=True)
    said, _ = receiver.communicate(timeout=30)
    return "arrived" in said


def _in(namespace: str | None) -> list[str]:
    return [] if namespace is None else ["ip", "netns", "exec", namespace]
