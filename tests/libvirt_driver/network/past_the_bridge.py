"""What reaches the node's UDP services past the bridge: by link-local addresses, or from a tap without a bridge. Prints JSON."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from node_agent.drivers.libvirt.network.networks import TenantNetworks
from tests.libvirt_driver.network.frames import BROADCAST, MARK, SENDER, frame
from tests.libvirt_driver.network.stage import A1, SERVICE, UPLINK, bridge_netfilter, node_with, policy, reached, sh

PORT = 5300
NODE = (IPv4Address(UPLINK), IPv6Address("2001:db8::1"))
FORGED = (IPv4Address("198.51.100.77"), IPv6Address("2001:db8::77"))
NEAREST_BRIDGE = "01:80:c2:00:00:0e"
STRANGE = "52:54:00:00:00:77"


@dataclass(frozen=True)
class Case:
    """What protects the node. `mac`: where the frames are sent to."""

    tables: tuple[str, ...] = ("bridge", "inet")
    ipv6: bool = True
    in_bridge: bool = True
    netfilter: bool = False
    mac: str = NEAREST_BRIDGE


CASES = {
    "all": Case(ipv6=False),
    "all, bridge netfilter": Case(ipv6=False, netfilter=True),
    "nothing": Case(tables=()),
    "another link-local address": Case(tables=("bridge",), mac="01:80:c2:00:00:03"),
    "bridge rules": Case(tables=("bridge",)),
    "inet rules": Case(tables=("inet",)),
    "ipv6 off": Case(tables=(), ipv6=False),
    "no bridge, all": Case(ipv6=False, in_bridge=False, mac=BROADCAST),
    "no bridge, inet rules": Case(tables=("inet",), in_bridge=False, mac=BROADCAST),
    "no bridge, nothing": Case(tables=(), in_bridge=False, mac=BROADCAST),
}


def udp(version: int) -> bytes:
    """A UDP packet with a forged source to the node."""
    at = 0 if version == 4 else 1
    addresses = FORGED[at].packed + NODE[at].packed
    length = 8 + len(MARK)
    head = b"".join(one.to_bytes(2, "big") for one in (PORT, PORT, length))
    pseudo = addresses + (17).to_bytes(4, "big") + length.to_bytes(4, "big")
    payload = head + _sum(pseudo + head + MARK) + MARK
    if version == 6:
        return bytes.fromhex("60000000") + length.to_bytes(2, "big") + bytes([17, 64]) + addresses + payload
    start = bytes([0x45, 0]) + (20 + length).to_bytes(2, "big") + bytes([0, 0, 0, 0, 64, 17])
    return start + _sum(start + addresses) + addresses + payload


def _sum(data: bytes) -> bytes:
    padded = data + bytes(len(data) % 2)
    total = sum(int.from_bytes(padded[i : i + 2], "big") for i in range(0, len(padded), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF).to_bytes(2, "big")


def send(mac: str, source: str = A1.order.mac) -> None:
    """Send a packet of each version from A1."""
    sent = [frame(kind, udp(version), source, mac).hex() for kind, version in ((0x0800, 4), (0x86DD, 6))]
    subprocess.run(["ip", "netns", "exec", "a1", sys.executable, "-Sc", SENDER, *sent], check=True)


def arrived(mac: str) -> list[str]:
    """The versions that the node's services receive."""
    with ExitStack() as stack:
        services = {
            name: stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
            for name, family in (("ipv4", socket.AF_INET), ("ipv6", socket.AF_INET6))
        }
        services["ipv6"].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        for service in services.values():
            service.settimeout(1.0)
            service.bind(("", PORT))
        send(mac)
        return [name for name, service in services.items() if _receives(service)]


def _receives(service: socket.socket) -> bool:
    try:
        return service.recv(100) == MARK
    except TimeoutError:
        return False


def learned() -> bool:
    """Whether the bridge learns an address from a frame that skips its rules."""
    send(NEAREST_BRIDGE, source=STRANGE)
    return STRANGE in sh(f"bridge fdb show br {A1.bridge}")


async def played(networks: TenantNetworks, case: Case) -> list[str]:
    """What arrives in one case; afterwards everything is restored."""
    for table in {"bridge", "inet"} - set(case.tables):
        sh(f"nft delete table {table} berth")
    setting = Path(f"/proc/sys/net/ipv6/conf/{A1.tap}/disable_ipv6")
    if case.ipv6:
        setting.write_text("0")
    if not case.in_bridge:
        sh(f"ip link set {A1.tap} nomaster")
    bridge_netfilter(case.netfilter)
    found = arrived(case.mac)
    bridge_netfilter(False)
    setting.write_text("1")
    await networks.tend()
    return found


def answers_arp() -> bool:
    """Whether the node answers a guest whose tap is out of its bridge when it asks for an address of the node."""
    sh(f"ip route replace {UPLINK}/32 dev eth0", "a1")
    reached("a1", UPLINK, SERVICE)
    return "lladdr" in sh(f"ip neigh show {UPLINK}; ip neigh flush all", "a1")


async def main() -> None:
    """Print what arrives in each case, and whether the bridge learns."""
    stage = node_with([("a1", A1)])
    sh("ip addr add 2001:db8::1/64 dev up0 nodad; for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$f; done")
    networks = TenantNetworks(policy(), lambda: [A1])
    found: dict[str, object] = {}
    try:
        await networks.start()
        found["settings"] = [
            Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").read_text().strip() for name in (A1.tap, A1.bridge)
        ]
        for name, case in CASES.items():
            found[name] = await played(networks, case)
        sh("nft delete table bridge berth; nft delete table inet berth")
        found["learned"] = [learned()]
        sh(f"ip link set {A1.bridge} type bridge no_linklocal_learn 0")
        found["learned"] = [*found["learned"], learned()]  # type: ignore[misc]
        sh(f"ip link set {A1.tap} nomaster")
        found["arp"] = [answers_arp()]
        sh(f"ip link set {A1.tap} arp on")
        found["arp"] = [*found["arp"], answers_arp()]  # type: ignore[misc]
    finally:
        stage.end()
    print(json.dumps(found))  # noqa: T201 - the result


if __name__ == "__main__":
    asyncio.run(main())
