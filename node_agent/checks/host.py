"""Every check of the host, for `python -m node_agent --check`, and those that run at each start. They change nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from node_agent.checks.accelerator import check_emulation, check_kvm, kvm_boots
from node_agent.checks.bridges import check_bridge_filter
from node_agent.checks.console_logs import check_console_logs
from node_agent.checks.disk_pool import check_disk_pool, disk_pool_by
from node_agent.checks.finding import Finding
from node_agent.checks.firmware import check_ovmf
from node_agent.checks.hypervisor import check_libvirt, check_traversal
from node_agent.checks.iommu import check_iommu
from node_agent.checks.kvm_device import check_qemu_users
from node_agent.checks.networks import NetworkSettings, check_tenant_networks
from node_agent.checks.resources import check_resources, wanted_by
from node_agent.checks.separation import check_separation
from node_agent.checks.storage import check_direct_io
from node_agent.checks.vfio import check_vfio
from node_agent.discovery.reading import Gaps, Tree
from node_agent.drivers.libvirt.placing import PlacementSettings
from node_agent.protocol import SLOT_INDEX_MAX
from node_agent.settings import Settings


def check_host(environment: Mapping[str, str]) -> list[Finding]:
    """Run every check. Directories are checked if the environment names them, libvirt if it names that driver."""
    state_dir, guest_dir = (environment.get(f"BERTH_{name}") for name in ("AGENT_STATE_DIR", "GUEST_DIR"))
    storage = [check_direct_io(Path(state_dir))] if state_dir else []
    if guest_dir:
        storage += _guest_directory(Path(guest_dir))
    probes = [check_emulation(), kvm := check_kvm()]
    if environment.get("BERTH_AGENT_DRIVER") != "libvirt":
        return [*storage, *probes]
    number = environment.get("BERTH_GUEST_USER_ID_FIRST", "")
    is_number = number.isdecimal() and len(number) < 11
    first = int(number) if is_number else Settings.model_fields["guest_user_id_first"].default
    libvirt = check_libvirt(environment.get("BERTH_LIBVIRT_URI", "qemu:///system"))
    networks = _networks(Path("/"), _network_settings(environment))
    gpus = _gpus(Path("/"), environment.get("BERTH_LIBVIRT_GPUS", "none"))
    system = check_system(Path("/"), first, lambda: kvm.code is None, wanted_by(environment))
    pool = check_disk_pool(*disk_pool_by(environment))
    return [*storage, *pool, *probes, libvirt, *system, *networks, *gpus]


def check_start(
    state_dir: Path, guest_dir: Path, user_id_first: int, root: Path = Path("/"),
    networks: NetworkSettings | None = None, wanted: PlacementSettings | None = None, gpus: str = "none",
    disk_pool: tuple[str | None, float] = (None, 1.0),
) -> list[Finding]:  # fmt: skip
    """What an agent with the driver libvirt checks at each start: whatever takes no guest to find out.

    libvirtd and the accelerator are left to the start of the driver. `networks`: None without tenant networks.
    """
    storage = [check_direct_io(state_dir), *_guest_directory(guest_dir), *check_disk_pool(*disk_pool)]
    return [
        *storage,
        *check_system(root, user_id_first, kvm_boots, wanted),
        *_networks(root, networks),
        *_gpus(root, gpus),
    ]


def check_system(
    root: Path, user_id_first: int, boots: Callable[[], bool], wanted: PlacementSettings | None = None
) -> list[Finding]:
    """The checks of the files below `root` and of the users of QEMU. `boots`: whether KVM runs a guest.

    `wanted`: what guests are given; without it the default of the settings.
    """
    tree = Tree(root, Gaps())
    # The first and the last of the users: between them nothing differs but what an administrator made so.
    last = user_id_first + SLOT_INDEX_MAX
    users = [*check_qemu_users(tree, root, (user_id_first, last), boots), check_separation(tree, user_id_first, last)]
    others = [check_console_logs(tree), check_bridge_filter(tree), check_iommu(tree)]
    return [*users, *others, *check_resources(root, wanted or wanted_by({})), check_ovmf(root)]


def _network_settings(environment: Mapping[str, str]) -> NetworkSettings | None:
    said = {
        name: environment.get(f"BERTH_LIBVIRT_NETWORK{name}", "")
        for name in ("", "_NAMES", "_UPLINK", "_UPLINK_INTERFACE", "_MTU")
    }
    if said[""] != "bridge":
        return None
    trunk = said["_UPLINK_INTERFACE"] or None if said["_UPLINK"] == "vlan" else None
    mtu = int(said["_MTU"]) if said["_MTU"].isdecimal() else NetworkSettings.mtu
    return NetworkSettings(said["_NAMES"] in ("", "dnsmasq"), trunk, mtu)


def _networks(root: Path, wanted: NetworkSettings | None) -> list[Finding]:
    return [] if wanted is None else check_tenant_networks(Tree(root, Gaps()), wanted)


def _gpus(root: Path, gpus: str) -> list[Finding]:
    return check_vfio(root) if gpus == "vfio" else []


def report_host() -> int:
    """Print one line per finding. Return 0 if no finding refuses the host, otherwise 1."""
    findings = check_host(os.environ)
    for finding in findings:
        print(finding.line())  # noqa: T201 - the output of the command
    return 0 if all(finding.passed for finding in findings) else 1


def _guest_directory(directory: Path) -> list[Finding]:
    return [check_direct_io(directory, "guest directory", "BERTH_GUEST_DIR"), check_traversal(directory)]
