"""What holds for every tenant network of a node, by its operator's settings."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

ETHERNET_MTU = 1500


@dataclass(frozen=True)
class Uplink:
    """How the node's networks are connected with those of other nodes: VXLAN (RFC 7348) from `underlay`.

    `peers`: the networks in which other nodes may have their underlay addresses. `mtu`: bytes of an IP packet of a guest.
    """

    underlay: IPv4Address
    peers: tuple[IPv4Network, ...]
    mtu: int


@dataclass(frozen=True)
class Trunk:
    """How the node's networks are connected with those of other nodes: VLANs (IEEE 802.1Q) of `interface`, used for nothing else.

    `underlay`: the node's address, which distinguishes it from others; nothing is sent to it. `mtu`: as of an `Uplink`.
    """

    interface: str
    underlay: IPv4Address
    mtu: int

    @property
    def peers(self) -> tuple[IPv4Network, ...]:
        """Any address distinguishes a node: frames are taken from the fabric, whose ports are the operator's."""
        return (IPv4Network("0.0.0.0/0"),)


@dataclass(frozen=True)
class Naming:
    """DHCP and DNS of the node's networks. `domain` is that of guests' names; `resolvers` are asked for all others."""

    domain: str
    resolvers: tuple[IPv4Address, ...] = ()


@dataclass(frozen=True)
class Policy:
    """What holds for every guest of the node. `host` is the address of published ports, `closed` what no guest reaches.

    `egress`: whether guests reach what is neither closed nor another network, with the node's address as source. `uplink`: None
    if networks end at the node. `naming`: None if guests get neither addresses by DHCP nor names.
    """

    host: IPv4Address
    closed: tuple[IPv4Network, ...]
    egress: bool
    uplink: Uplink | Trunk | None = None
    naming: Naming | None = None

    @property
    def mtu(self) -> int:
        """The largest IP packet of a guest."""
        return ETHERNET_MTU if self.uplink is None else self.uplink.mtu
