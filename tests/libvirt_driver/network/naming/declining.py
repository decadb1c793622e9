"""A guest that declines the address of another one, as DHCP's client of its card. Prints JSON."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

from node_agent.drivers.libvirt.network.programs import apply_rules
from node_agent.drivers.libvirt.network.rules import Guest, replacement
from tests.libvirt_driver.network.naming.answers import DB, GATEWAY, staged_node
from tests.libvirt_driver.network.naming.asking import leased

# RFC 2131 §4.4.4: DHCPDECLINE with the requested address and the server's.
_DECLINE = """
import socket, sys
chaddr, address, server = bytes.fromhex(sys.argv[1].replace(":", "")), *map(socket.inet_aton, sys.argv[2:4])
body = bytes([1, 1, 6, 0]) + b"berth" + bytes(19) + chaddr + bytes(10 + 64 + 128) + bytes.fromhex("63825363350104")
body += bytes([50, 4]) + address + bytes([54, 4]) + server + bytes([255]) + bytes(40)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
    it.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1); it.bind(("0.0.0.0", 68))
    it.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0"); it.sendto(body, ("255.255.255.255", 67))
"""


def declined(namespace: str, of: Guest) -> None:
    """Decline the guest's address from this namespace."""
    order = of.order
    command = [sys.executable, "-Sc", _DECLINE, order.mac, str(order.address), GATEWAY]
    subprocess.run(["ip", "netns", "exec", namespace, *command], check=True)


async def main() -> None:
    """Print what the other guest is leased, with the rules and without the one of clients."""
    with staged_node() as (node, _):
        await node.networks.start()
        found = [leased("a2", DB).get("address")]
        declined("a1", DB)
        found.append(leased("a2", DB).get("address"))
        text = replacement(node.policy, node.guests)
        apply_rules(text.replace('counter drop comment "dhcp of others"', "accept"))
        declined("a1", DB)
        found.append(leased("a2", DB).get("address"))
    print(json.dumps(found))  # noqa: T201 - the result


if __name__ == "__main__":
    asyncio.run(main())
