"""What the guests of one node have in common: bounds, directories, leases, images, hypervisor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import UUID

from node_agent.drivers.images import ImageBounds, ImageCache
from node_agent.drivers.leases import Leases
from node_agent.drivers.libvirt.disk_pool.pool import DiskPool
from node_agent.drivers.libvirt.first_boot import FirstBoots
from node_agent.drivers.libvirt.hypervisor import Hypervisor
from node_agent.drivers.libvirt.network.networks import TenantNetworks
from node_agent.drivers.libvirt.network.rules import Guest
from node_agent.drivers.libvirt.placing import PlacementSettings, Placing
from node_agent.drivers.libvirt.ports import free_port
from node_agent.drivers.libvirt.records import GuestDirectory, GuestRecord
from node_agent.drivers.libvirt.vfio.passing import PassedGpus
from node_agent.drivers.libvirt.vfio.taken import TakenDevices

_STAGES: dict[str, Literal["coming", "there", "leaving"]] = {"provisioning": "coming", "releasing": "leaving"}


@dataclass(frozen=True)
class LibvirtLimits:
    """Bounds of one node. Seconds and bytes; what a guest has is counted by slot. `host` is an IPv4 address of the node."""

    host: str
    ssh_port_first: int
    ssh_port_last: int
    readiness_seconds: float
    images: ImageBounds
    lease_seconds: float
    disk_bytes: int
    user_id_first: int
    placement: PlacementSettings


@dataclass
class Node:
    """What the guests of one node have in common. `remove` and `tend` are the driver's."""

    limits: LibvirtLimits
    allocations: Path
    leases: Leases
    images: ImageCache
    hypervisor: Hypervisor
    remove: Callable[[UUID], Awaitable[None]]
    tend: Callable[[], Awaitable[list[int]]]
    placing: Placing
    taken: TakenDevices
    first_boots: FirstBoots
    accelerator: Literal["kvm", "qemu"] = "qemu"
    networks: TenantNetworks | None = None
    """Of an agent with `BERTH_LIBVIRT_NETWORK=bridge`."""
    gpus: PassedGpus | None = None
    """Of an agent with `BERTH_LIBVIRT_GPUS=vfio`."""
    disk_pool: DiskPool | None = None
    """Of an agent with `BERTH_LIBVIRT_DISK_POOL`."""
    network_mtu: int | None = None
    """Of guests in networks that span nodes."""
    network_domain: str | None = None
    """Of the names of guests in networks whose gateway is a resolver."""

    def directory(self, allocation_id: UUID) -> GuestDirectory:
        """The directory of an allocation."""
        return GuestDirectory(self.allocations / str(allocation_id))

    def directories(self) -> list[GuestDirectory]:
        """Every directory that is there. Raises OSError."""
        return [GuestDirectory(path) for path in sorted(self.allocations.iterdir())]

    def free_port(self, host: str, *others: int) -> int:
        """A port of this node's address `host` that neither a guest nor `others` have. Raises OSError."""
        return free_port(host, self.limits.ssh_port_first, self.limits.ssh_port_last, {*others, *self._ports()})

    def require_free(self, port: int) -> None:
        """Raise OSError if another guest has this port."""
        if port in self._ports():
            raise OSError(f"port {port} of this node leads to another guest; the ranges of ports overlap")

    def guests_in_networks(self) -> list[Guest]:
        """Every guest whose record names a tenant network, with its stage. Raises OSError."""
        found = [(directory, record) for directory in self.directories() if (record := directory.load()) is not None]
        return [
            Guest(record.allocation_id, order, _STAGES.get(record.state, "there"))
            for directory, record in found
            if (order := directory.order_of(record)) is not None
        ]

    def records(self) -> list[GuestRecord]:
        """The record of every guest that has one. Raises OSError."""
        return [record for directory in self.directories() if (record := directory.load()) is not None]

    def _ports(self) -> set[int | None]:
        records = self.records()
        return {*(record.port for record in records), *(record.check_port for record in records)}
