"""Tenant networks: the order of one guest's network, and the guests of a network on other nodes.

`NetworkOrder` is an optional member of a provision's parameters: only agents whose heartbeat names `TENANT_NETWORK_FEATURE`
receive it, an agent of the version before would refuse the task. `SpanReport` is in the heartbeat of an agent that names
`VXLAN_FEATURE` or `VLAN_FEATURE`, `SpanAnswer` in the answer. `names` of an order are for agents with `NAMES_FEATURE`, `vlan` for
those with `VLAN_FEATURE`.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Final, Self
from uuid import UUID

from pydantic import AfterValidator, FailFast, Field, WithJsonSchema, model_validator

from node_agent.wire.fields import FromServer, Wire

TENANT_NETWORK_FEATURE: Final = "tenant_network"
VXLAN_FEATURE: Final = "network_vxlan"
"""The agent connects its tenant networks with those of other nodes that name this feature."""
VLAN_FEATURE: Final = "network_vlan"
"""The agent connects its tenant networks by VLANs with those of other nodes that name this feature."""
NAMES_FEATURE: Final = "network_names"
"""The agent answers DHCP and DNS in its tenant networks."""
SSH_PORT: Final = 22
VNI_MAX: Final = 2**24 - 1
VLAN_MAX: Final = 4_094
"""IEEE 802.1Q keeps 0 and 4,095."""
PUBLISHED_MAX: Final = 16
SPANNED_GUESTS_MAX: Final = 10_000
"""Guests on other nodes, and networks, in one answer."""
NAMES_MAX: Final = 2
"""Of a guest: its host name, and the one that is leased to it."""
LABEL: Final = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
"""A name without dots (RFC 1123 §2.1), in lower case: nothing in it is special to a name server's files."""
_Names = Annotated[list[Annotated[str, Field(pattern=LABEL)]], Field(max_length=NAMES_MAX), FailFast()]
_Port = Annotated[int, Field(strict=True, ge=1, le=65_535)]
_Vni = Annotated[int, Field(strict=True, ge=1, le=VNI_MAX)]
_Vlan = Annotated[int, Field(strict=True, ge=1, le=VLAN_MAX)]
_Mac = Annotated[str, Field(pattern=r"^[0-9a-f][26ae](:[0-9a-f]{2}){5}$")]


def _of_a_host(address: IPv4Address) -> IPv4Address:
    if (
        address.is_loopback
        or address.is_multicast
        or address.is_link_local
        or address.is_unspecified
        or address.is_reserved
    ):
        raise ValueError("must be an address of one host that other hosts reach")
    return address


_PART = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_ADDRESS = {"type": "string", "format": "ipv4", "pattern": rf"^({_PART}\.){{3}}{_PART}$"}
_HOST = {
    **_ADDRESS,
    "pattern": rf"^(?!0\.|127\.|169\.254\.)(22[0-3]|2[01][0-9]|1[0-9]{{2}}|[1-9]?[0-9])(\.{_PART}){{3}}$",
}
_Address = Annotated[IPv4Address, WithJsonSchema(_ADDRESS)]
Underlay = Annotated[IPv4Address, AfterValidator(_of_a_host), WithJsonSchema(_HOST)]
"""The address at which a node sends and receives VXLAN packets; with VLANs the one that distinguishes it from other nodes."""


def host_name(allocation_id: UUID) -> str:
    """The host name of a guest (RFC 1123)."""
    return f"berth-{allocation_id}"


class PublishedPort(Wire):
    """A TCP port of the node's address that leads to a port of the guest."""

    port: _Port
    guest_port: _Port


class NetworkOrder(Wire):
    """The network of one guest. `vni` names the network in its region (RFC 7348); `gateway` is the node's address in it.

    `names`: the guest's in the network, its host name first. `vlan`: the network's in its region, for nodes that use VLANs.
    """

    network_id: UUID
    vni: _Vni
    subnet: IPv4Network
    gateway: IPv4Address
    address: IPv4Address
    mac: _Mac
    published: Annotated[list[PublishedPort], Field(min_length=1, max_length=PUBLISHED_MAX)]
    # Left out if there are none: an agent of the version before refuses unknown parameters.
    names: _Names = Field(default_factory=list, exclude_if=lambda it: not it)
    vlan: _Vlan | None = Field(None, exclude_if=lambda it: it is None)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        hosts = (self.gateway, self.address)
        if any(host not in self.subnet or host in (self.subnet[0], self.subnet[-1]) for host in hosts):
            raise ValueError("gateway and address are hosts of the subnet")
        if self.gateway == self.address:
            raise ValueError("gateway and address differ")
        if len({item.port for item in self.published}) < len(self.published):
            raise ValueError("a port is published once")
        if SSH_PORT not in {item.guest_port for item in self.published}:
            raise ValueError(f"port {SSH_PORT} of the guest is published")
        return self

    @property
    def ssh_port(self) -> int:
        """The node's port that leads to the guest's SSH server."""
        return next(item.port for item in self.published if item.guest_port == SSH_PORT)


class RemoteGuest(FromServer):
    """A guest of a network on another node; `underlay` is that node's, `names` are as in its order."""

    address: _Address
    mac: _Mac
    underlay: Underlay
    names: _Names = Field(default_factory=list)


class SpannedNetwork(FromServer):
    """A network that has guests on the node, with all of its guests on other nodes."""

    network_id: UUID
    vni: _Vni
    guests: Annotated[list[RemoteGuest], Field(max_length=SPANNED_GUESTS_MAX)]


class SpanReport(Wire):
    """Member of the heartbeat of an agent that connects tenant networks. `etag`: that of the answer whose networks it has."""

    underlay: Underlay
    etag: Annotated[str, Field(max_length=64, pattern=r"^[0-9a-f]*$")] | None = None


class SpanAnswer(FromServer):
    """Member of the answer. `networks`: all of the node's; None if they are those of the agent's `etag`, or too many to name."""

    etag: str
    networks: Annotated[list[SpannedNetwork], Field(max_length=SPANNED_GUESTS_MAX)] | None
