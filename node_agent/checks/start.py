"""The checks that run at each start of an agent with the driver libvirt."""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from node_agent.checks.finding import Finding, Severity
from node_agent.checks.host import check_start
from node_agent.checks.networks import NetworkSettings, can_serve_names
from node_agent.drivers.choice import placement_settings
from node_agent.problems import CannotStart
from node_agent.settings import Settings
from node_agent.wire.networks import NAMES_FEATURE

log = structlog.get_logger("node_agent")


async def require_fit_host(settings: Settings, root: Path = Path("/")) -> None:
    """Log what the checks object to. Raises CannotStart if one of them refuses the host.

    Drivers that carry nothing out on a real GPU need nothing of their host: for them nothing is checked.
    """
    if settings.agent_driver != "libvirt" or settings.guest_dir is None:
        return
    findings = await asyncio.to_thread(
        check_start, settings.agent_state_dir, settings.guest_dir, settings.guest_user_id_first, root,
        _network_settings(settings), placement_settings(settings), settings.libvirt_gpus,
        (settings.libvirt_disk_pool, settings.libvirt_disk_pool_overcommit),
    )  # fmt: skip
    for finding in findings:
        _log(finding)
    refused = next((finding for finding in findings if not finding.lets_start), None)
    if refused is not None:
        raise CannotStart(
            f"this host is not fit for guests: {refused.name}: {refused.found} [{refused.code}]; {refused.remedy}"
        )


def features_now(settings: Settings, root: Path = Path("/")) -> tuple[str, ...]:
    """The features of the settings, without names of guests while the host lacks what serves them."""
    found = settings.features()
    if NAMES_FEATURE not in found or can_serve_names(root):
        return found
    return tuple(one for one in found if one != NAMES_FEATURE)


def _network_settings(settings: Settings) -> NetworkSettings | None:
    if settings.libvirt_network != "bridge":
        return None
    by_vlan = settings.libvirt_network_uplink == "vlan"
    trunk = settings.libvirt_network_uplink_interface if by_vlan else None
    names = settings.libvirt_network_names == "dnsmasq"
    return NetworkSettings(names, trunk, settings.libvirt_network_mtu or NetworkSettings.mtu)


def _log(finding: Finding) -> None:
    if finding.code is None:
        return
    write = log.info if finding.severity is Severity.INFORMS else log.warning
    write("host_check", check=finding.name, code=finding.code, found=finding.found, remedy=finding.remedy)
