"""Versions of firmware that the machine states: BIOS by SMBIOS, disks by sysfs, network ports by their drivers."""

from __future__ import annotations

from pydantic import ValidationError

from node_agent.deploy_system.effects import ethtool
from node_agent.deploy_system.effects.contract import Host
from node_agent.deploy_system.effects.disks import found_disks
from node_agent.discovery.reading import Gaps, Tree
from node_agent.wire.deploy_tasks import FIRMWARE_MAX, FirmwareVersion
from node_agent.wire.topology import TEXT_MAX

BIOS = "bios"
DISK = "disk"
NIC = "nic"
_DMI = "class/dmi/id"
_PORTS = "class/net"


def read_firmware(host: Host, gaps: Gaps) -> list[FirmwareVersion]:
    """What each part states. A part without a version, or without a name that lasts, is left out."""
    tree = Tree(host.sys, Gaps())
    vendor, version = tree.line(f"{_DMI}/bios_vendor"), tree.line(f"{_DMI}/bios_version")
    found = [_version(BIOS, "smbios", vendor, version)]
    for disk in found_disks(host):
        device = f"block/{disk.name}/device"
        stated = tree.line(f"{device}/firmware_rev") or tree.line(f"{device}/rev")
        found.append(_version(DISK, disk.serial, disk.model, stated))
    for name in tree.names(_PORTS) or []:
        device = f"{_PORTS}/{name}/device"
        address = tree.link_name(device)
        if address is not None:
            ids = [(tree.line(f"{device}/{part}") or "").removeprefix("0x") for part in ("vendor", "device")]
            found.append(_version(NIC, address, ":".join(ids) if all(ids) else None, ethtool.firmware_of(name)))
    known = [one for one in found if one is not None]
    if len(known) > FIRMWARE_MAX:
        gaps.add("firmware", f"{len(known)} were found, the first {FIRMWARE_MAX} are listed")
    return known[:FIRMWARE_MAX]


def _version(component: str, unit: str | None, model: str | None, version: str | None) -> FirmwareVersion | None:
    if not unit or not version:
        return None
    try:
        return FirmwareVersion(
            component=component, unit=unit[:TEXT_MAX], model=model[:TEXT_MAX] if model else None, version=version
        )
    except ValidationError:  # it has characters that are not shown
        return None
