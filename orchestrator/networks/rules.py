"""Which subnets and ports there are, and what follows from an address. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from node_agent.wire.networks import LABEL, VLAN_MAX

POOL = IPv4Network("10.64.0.0/10")
GATEWAY_HOST = 1
"""The node's place in each subnet."""


class NetworkFull(Exception):
    """Nothing is left to lease; the text says of what."""


@dataclass(frozen=True, slots=True)
class NetworkLimits:
    """What is leased from; settings of the worker. `prefix_length` is that of each tenant's subnet.

    `vlans`: of networks on nodes that are connected by them, in each region the same; one that was left is another network's only
    after `vlan_quarantine_seconds`.
    """

    pool: IPv4Network = POOL
    prefix_length: int = 24
    port_first: int = 32_000
    port_last: int = 32_767
    vlans: tuple[int, ...] = ()
    vlan_quarantine_seconds: float = 86_400.0

    @property
    def subnets(self) -> int:
        """How many networks the pool has room for."""
        return int(2 ** max(0, self.prefix_length - self.pool.prefixlen))


_VLANS = re.compile(r"^([0-9]{1,4})(?:-([0-9]{1,4}))?$")
VLAN_FIRST = 2
"""1 is the VLAN of untagged frames at the ports of most switches."""


def parse_vlans(text: str) -> tuple[int, ...]:
    """The VLANs of a list like `100-999,1200`, sorted; an empty text is none. Raises ValueError."""
    found: set[int] = set()
    for part in text.replace(" ", "").split(","):
        if not part:
            continue
        match = _VLANS.match(part)
        if match is None:
            raise ValueError(f"{part} is no list of VLANs like 100-999,1200")
        first, last = int(match[1]), int(match[2] or match[1])
        if not VLAN_FIRST <= first <= last <= VLAN_MAX:
            raise ValueError(f"{part} is no range of VLANs from {VLAN_FIRST} to {VLAN_MAX}")
        found |= set(range(first, last + 1))
    return tuple(sorted(found))


def gateway_of(subnet: IPv4Network) -> IPv4Address:
    """The node's address in a network."""
    return subnet[GATEWAY_HOST]


def label_of(name: str | None) -> str | None:
    """The name of an allocation as its guest's in the network, in lower case.

    None if it is no DNS label, could be taken for an address or for a host name, or always means the guest that asks.
    """
    if name is None or not name.isascii():
        return None
    label = name.lower()
    if re.fullmatch(LABEL, label) is None or label.isdecimal() or label.startswith("berth-") or label == "localhost":
        return None
    return label


def mac_of(address: IPv4Address) -> str:
    """The MAC address of a guest: unique where its address is, so it needs no lease. Locally administered."""
    return ":".join(f"{octet:02x}" for octet in (0x52, 0x54, *address.packed))
