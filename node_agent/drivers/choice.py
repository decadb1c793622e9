"""Which driver a setting means."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from node_agent.drivers.contract import Driver
from node_agent.drivers.images import ImageBounds
from node_agent.drivers.libvirt.placing import PlacementSettings
from node_agent.drivers.noop import NoopDriver
from node_agent.drivers.sandbox.driver import SandboxDriver
from node_agent.drivers.sandbox.provisioning import SandboxLimits
from node_agent.problems import CannotStart
from node_agent.settings import Settings
from node_agent.wire.networks import Underlay
from node_agent.wire.processors import parse_processors

if TYPE_CHECKING:
    from node_agent.drivers.libvirt.network.policy import Trunk, Uplink

VXLAN_MTU = 1450
"""50 bytes below that of Ethernet."""


def choose_driver(settings: Settings) -> Driver:
    """The driver that `BERTH_AGENT_DRIVER` names, keeping its things in the agent's state directory.

    Raises `CannotStart` for one that carries nothing out on a real GPU, where that is not allowed.
    """
    if settings.agent_driver in ("sandbox", "noop") and not settings.sandbox_allowed:
        raise CannotStart(
            f"the driver {settings.agent_driver} uses no real GPU; set BERTH_SANDBOX_ALLOWED=true to try Berth out"
        )
    if settings.agent_driver == "noop":
        return NoopDriver(settings.agent_advertised_host)
    if settings.agent_driver == "libvirt":
        return _libvirt(settings)
    limits = SandboxLimits(
        ssh_port_first=settings.agent_ssh_port_first,
        ssh_port_last=settings.agent_ssh_port_last,
        readiness_seconds=settings.agent_readiness_seconds,
        images=_image_bounds(settings),
        lease_seconds=settings.agent_lease_seconds,
    )
    return SandboxDriver(settings.agent_state_dir / "sandbox", settings.agent_advertised_host, limits)


def placement_settings(settings: Settings) -> PlacementSettings:
    """What the settings say of processors and memory of guests."""
    reserved = settings.libvirt_reserved_processors
    return PlacementSettings(
        processors=settings.guest_processors,
        memory_bytes=settings.guest_memory_bytes,
        slots=settings.libvirt_slots,
        reserved=None if reserved is None else parse_processors(reserved),
        huge_page_kib=settings.libvirt_huge_page_kib,
    )


def _image_bounds(settings: Settings) -> ImageBounds:
    return ImageBounds(
        settings.agent_image_bytes_max, settings.agent_image_cache_max, settings.agent_image_cache_bytes_max
    )


def _libvirt(settings: Settings) -> Driver:
    if settings.guest_dir is None:
        raise CannotStart("the driver libvirt needs BERTH_GUEST_DIR, a directory that QEMU's users can traverse")
    if settings.libvirt_huge_page_kib and settings.guest_memory_bytes % (settings.libvirt_huge_page_kib * 1024):
        raise CannotStart("BERTH_GUEST_MEMORY_BYTES is no multiple of BERTH_LIBVIRT_HUGE_PAGE_KIB")
    try:
        # Imported here: the packages of requirements-libvirt.lock are on nodes with this driver alone.
        from node_agent.drivers.libvirt.disk_pool.contents import PoolName
        from node_agent.drivers.libvirt.disk_pool.pool import PoolSettings
        from node_agent.drivers.libvirt.driver import LibvirtDriver
        from node_agent.drivers.libvirt.network.policy import Naming, Policy
        from node_agent.drivers.libvirt.node import LibvirtLimits
        from node_agent.drivers.libvirt.starting import GpuSettings
    except ImportError as error:
        raise CannotStart(f"the driver libvirt needs the packages of requirements-libvirt.lock: {error}") from error
    try:
        host = IPv4Address(settings.agent_advertised_host)
    except ValueError as error:
        raise CannotStart(
            f"the driver libvirt needs an IPv4 address of this node as BERTH_AGENT_ADVERTISED_HOST: {error}"
        ) from error
    limits = LibvirtLimits(
        host=settings.agent_advertised_host,
        ssh_port_first=settings.agent_ssh_port_first,
        ssh_port_last=settings.agent_ssh_port_last,
        readiness_seconds=settings.agent_readiness_seconds,
        images=_image_bounds(settings),
        lease_seconds=settings.agent_lease_seconds,
        disk_bytes=settings.guest_disk_bytes,
        user_id_first=settings.guest_user_id_first,
        placement=placement_settings(settings),
    )
    if settings.libvirt_network == "bridge" and host.is_loopback:
        raise CannotStart(
            "BERTH_LIBVIRT_NETWORK=bridge needs an address other than loopback as BERTH_AGENT_ADVERTISED_HOST"
        )
    uplink = _uplink(settings, host)
    names = settings.libvirt_network_names == "dnsmasq"
    naming = Naming(settings.libvirt_network_domain, tuple(settings.libvirt_network_resolvers)) if names else None
    policy = Policy(host, tuple(settings.libvirt_closed_networks), settings.libvirt_egress, uplink, naming)
    in_networks = settings.libvirt_network == "bridge"
    gpus = GpuSettings(settings.libvirt_gpus_after == "host") if settings.libvirt_gpus == "vfio" else None
    pool = settings.libvirt_disk_pool
    disks = None if pool is None else PoolSettings(PoolName.of(pool), settings.libvirt_disk_pool_overcommit)
    return LibvirtDriver(settings.guest_dir, settings.libvirt_uri, limits, policy if in_networks else None, gpus, disks)


def _uplink(settings: Settings, host: IPv4Address) -> Uplink | Trunk | None:
    """How tenant networks leave the node. Raises CannotStart for settings that are incomplete."""
    from node_agent.drivers.libvirt.network.policy import ETHERNET_MTU, Trunk, Uplink

    if settings.libvirt_network_uplink == "none":
        return None
    if settings.libvirt_network != "bridge":
        raise CannotStart("BERTH_LIBVIRT_NETWORK_UPLINK needs BERTH_LIBVIRT_NETWORK=bridge")
    mtu, interface = settings.libvirt_network_mtu, settings.libvirt_network_uplink_interface
    if settings.libvirt_network_uplink == "vlan":
        if interface is None:
            raise CannotStart("BERTH_LIBVIRT_NETWORK_UPLINK=vlan needs BERTH_LIBVIRT_NETWORK_UPLINK_INTERFACE")
        try:
            TypeAdapter(Underlay).validate_python(host)
        except ValidationError as error:
            raise CannotStart(
                f"BERTH_LIBVIRT_NETWORK_UPLINK=vlan needs an address of one host as BERTH_AGENT_ADVERTISED_HOST, not {host}"
            ) from error
        return Trunk(interface, host, mtu or ETHERNET_MTU)
    underlay, peers = settings.libvirt_network_underlay, settings.libvirt_network_peers
    if underlay is None or not peers:
        raise CannotStart(
            "BERTH_LIBVIRT_NETWORK_UPLINK=vxlan needs BERTH_LIBVIRT_NETWORK_UNDERLAY and BERTH_LIBVIRT_NETWORK_PEERS"
        )
    if not any(underlay in network for network in peers):
        raise CannotStart(
            f"BERTH_LIBVIRT_NETWORK_UNDERLAY {underlay} is in none of BERTH_LIBVIRT_NETWORK_PEERS, so no other node would use it"
        )
    return Uplink(underlay, tuple(peers), mtu or VXLAN_MTU)
