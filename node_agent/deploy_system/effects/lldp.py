"""Hears the switch ports that the machine's network ports are connected to (IEEE 802.1AB): listens, and sends nothing."""

from __future__ import annotations

import select
import socket
import time
from dataclasses import dataclass
from typing import Final

from node_agent.deploy_system.effects.contract import Host
from node_agent.discovery.reading import Gaps, Tree, printable
from node_agent.wire.deploy_tasks import LldpNeighbour
from node_agent.wire.topology import TEXT_MAX

ETHERTYPE: Final = 0x88CC
LISTEN_SECONDS: Final = 35.0
"""Switches announce themselves every 30 s by default (IEEE 802.1AB-2016 §9.2.5)."""
_SOL_PACKET: Final = 263
_PACKET_ADD_MEMBERSHIP: Final = 1
_GROUP: Final = bytes.fromhex("0180c200000e")
_FRAME_BYTES_MAX: Final = 9216


@dataclass(frozen=True)
class Announcement:
    """What a switch says of its port."""

    chassis_id: str
    port_id: str
    system_name: str | None


def ports(host: Host) -> dict[str, str]:
    """Network ports with a device, by name, with their MAC."""
    tree = Tree(host.sys, Gaps())
    names = [name for name in tree.names("class/net") or [] if tree.has(f"class/net/{name}/device")]
    return {name: mac.lower() for name in names if (mac := tree.line(f"class/net/{name}/address"))}


def hear_neighbours(host: Host, seconds: float) -> list[LldpNeighbour] | None:
    """Bring the ports up and listen on each until each was heard, at most `seconds`; None if none can be listened on."""
    listening = {}
    for name, mac in ports(host).items():
        host.run(["ip", "link", "set", "dev", name, "up"], 10.0)
        if (opened := _listen(name)) is not None:
            listening[opened] = (name, mac)
    if not listening:
        return None
    heard: dict[str, LldpNeighbour] = {}
    end = time.monotonic() + seconds
    try:
        while (left := end - time.monotonic()) > 0 and len(heard) < len(listening):
            host.check_stop()
            readable, _, _ = select.select(list(listening), [], [], min(left, 1.0))
            for opened in readable:
                mac = listening[opened][1]
                if (said := parse_frame(opened.recv(_FRAME_BYTES_MAX))) is not None:
                    heard[mac] = LldpNeighbour(
                        mac=mac, chassis_id=said.chassis_id, port_id=said.port_id, system_name=said.system_name
                    )
    finally:
        for opened in listening:
            opened.close()
    return [heard[mac] for mac in sorted(heard)]


def parse_frame(frame: bytes) -> Announcement | None:
    """The announcement in an Ethernet frame; None if it is none, is cut off, or lacks chassis or port."""
    if len(frame) < 14 or frame[12:14] != ETHERTYPE.to_bytes(2, "big"):
        return None
    at, parts = 14, dict[int, bytes]()
    while at + 2 <= len(frame):
        head = int.from_bytes(frame[at : at + 2], "big")
        kind, length = head >> 9, head & 0x1FF
        if kind == 0:
            break
        if at + 2 + length > len(frame):
            return None
        parts.setdefault(kind, frame[at + 2 : at + 2 + length])
        at += 2 + length
    chassis, port = _identity(parts.get(1, b""), 4), _identity(parts.get(2, b""), 3)
    if not chassis or not port:
        return None
    return Announcement(chassis, port, _text(parts.get(5, b"")) or None)


def _identity(value: bytes, mac_subtype: int) -> str:
    if len(value) < 2:
        return ""
    return value[1:].hex(":") if value[0] == mac_subtype and len(value) == 7 else _text(value[1:])


def _text(value: bytes) -> str:
    return printable(value.decode("utf-8", errors="replace"))[:TEXT_MAX].strip()


def _listen(name: str) -> socket.socket | None:
    try:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
    except OSError:
        return None
    try:
        opened.bind((name, ETHERTYPE))
        index = socket.if_nametoindex(name)
        membership = index.to_bytes(4, "little") + (0).to_bytes(2, "little") + (6).to_bytes(2, "little")
        opened.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership + _GROUP + b"\0\0")
    except OSError:
        opened.close()
        return None
    opened.setblocking(False)
    return opened
