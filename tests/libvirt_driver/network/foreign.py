"""A bridge of the node that is none of a tenant network: what its own machines ask a DHCP server among them. Prints JSON."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

from node_agent.drivers.libvirt.network.networks import TenantNetworks
from node_agent.drivers.libvirt.network.policy import Naming
from tests.libvirt_driver.network.stage import A1, A2, node_with, policy, sh

# Prints what it hears, or ends when nothing has come for a while after the client has ended.
_SERVER = """
import select, socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
    it.bind(("0.0.0.0", 67)); print("listening", flush=True)
    if it in select.select([it, sys.stdin], [], [])[0] or select.select([it], [], [], 2.0)[0]: print(it.recv(100).decode())
"""
_CLIENT = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
    it.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1); it.bind(("0.0.0.0", 68))
    it.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0"); it.sendto(b"asked", ("255.255.255.255", 67))
"""


def asked(client: str, server: str) -> str:
    """What a server hears of a request to all: `asked`, or nothing."""
    listening = subprocess.Popen(
        ["ip", "netns", "exec", server, sys.executable, "-Sc", _SERVER],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert listening.stdout is not None
    assert listening.stdout.readline() == "listening\n"
    subprocess.run(["ip", "netns", "exec", client, sys.executable, "-Sc", _CLIENT], check=True)
    said, _ = listening.communicate(timeout=30)
    return said.strip()


def foreign_bridge() -> None:
    """Two machines at a bridge of the operator's."""
    sh("ip link add br-site type bridge; ip link set br-site up")
    for name, address in (("m1", "192.0.2.1"), ("m2", "192.0.2.2")):
        sh(f"""ip netns add {name}; ip link add {name} type veth peer name eth0 netns {name}
               ip link set {name} master br-site up""")
        sh(f"ip link set eth0 up; ip addr add {address}/24 dev eth0", name)


async def main() -> None:
    """Print what is heard in each setting."""
    stage = node_with([("a1", A1), ("a2", A2)])
    found: dict[str, list[str]] = {}
    try:
        foreign_bridge()
        for setting, naming in (("names", Naming("berth.internal")), ("no names", None)):
            networks = TenantNetworks(policy(naming=naming), lambda: [A1, A2])
            await networks.start()
            found[setting] = [asked("m1", "m2"), asked("a1", "a2")]
            networks.close()
        sh("nft delete table inet berth; nft delete table bridge berth")
        found["no rules"] = [asked("m1", "m2"), asked("a1", "a2")]
    finally:
        stage.end()
    print(json.dumps(found))  # noqa: T201 - the result


if __name__ == "__main__":
    asyncio.run(main())
