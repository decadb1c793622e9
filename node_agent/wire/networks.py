"""The tenant network of a guest, as the control plane orders it: an optional member of a provision's parameters.

Only agents whose heartbeat names `TENANT_NETWORK_FEATURE` receive it; an agent of the version before would refuse the task.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Final, Self
from uuid import UUID

from pydantic import Field, model_validator

from node_agent.wire.fields import Wire

TENANT_NETWORK_FEATURE: Final = "tenant_network"
SSH_PORT: Final = 22
VNI_MAX: Final = 2**24 - 1
PUBLISHED_MAX: Final = 16
_Port = Annotated[int, Field(strict=True, ge=1, le=65_535)]


class PublishedPort(Wire):
    """A TCP port of the node's address that leads to a port of the guest."""

    port: _Port
    guest_port: _Port


class NetworkOrder(Wire):
    """The network of one guest. `vni` names the network in its region (RFC 7348); `gateway` is the node's address in it."""

    network_id: UUID
    vni: Annotated[int, Field(strict=True, ge=1, le=VNI_MAX)]
    subnet: IPv4Network
    gateway: IPv4Address
    address: IPv4Address
    mac: Annotated[str, Field(pattern=r"^[0-9a-f][26ae](:[0-9a-f]{2}){5}$")]
    published: Annotated[list[PublishedPort], Field(min_length=1, max_length=PUBLISHED_MAX)]

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
