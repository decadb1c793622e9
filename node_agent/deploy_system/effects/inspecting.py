"""`metal.inspect`: the whole machine, read without writing to any disk."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from node_agent.deploy_system.effects import lldp, uefi_variables
from node_agent.deploy_system.effects.contract import Host, Progress
from node_agent.deploy_system.effects.disks import found_disks, storage_without_driver
from node_agent.deploy_system.effects.firmware import read_firmware
from node_agent.deploy_system.effects.steps import step
from node_agent.discovery.hardware import read_hardware
from node_agent.discovery.reading import Gaps, Tree
from node_agent.wire.deploy_tasks import (
    CONTROLLERS_MAX,
    REPORT_BYTES_MAX,
    UEFI_VARIABLES_MAX,
    MetalInspectParameters,
    MetalInspectReport,
)
from node_agent.wire.fields import Truth
from node_agent.wire.topology import DISKS_MAX, Disk, PciAddress, Topology

DRIVER: Final = "redfish"
_UUID: Final = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_NO_UUID: Final = "00000000-0000-0000-0000-000000000000"


def inspect(
    host: Host, parameters: MetalInspectParameters, progress: Progress, root: Path = Path("/")
) -> MetalInspectReport:
    """Read the machine. A part that cannot be read is absent and named in `gaps`. What hides disks is named too."""
    gaps = Gaps()
    with step(host, progress, "hardware"):
        topology = read_hardware(DRIVER, root)
        tree = Tree(host.sys, gaps)
        topology = topology.model_copy(update={"disks": _disks(host, topology, gaps)})
        hidden = storage_without_driver(host)
        firmware = read_firmware(host, gaps)
        uuid = (tree.line("class/dmi/id/product_uuid") or "").lower()
        if not _UUID.match(uuid):
            gaps.add("smbios_uuid", "the firmware states none")
            uuid = _NO_UUID
        listed = uefi_variables.variables(host)
        if listed is not None and len(listed) > UEFI_VARIABLES_MAX:
            gaps.add("uefi_variables", f"{len(listed)} were found, the first {UEFI_VARIABLES_MAX} are listed")
    with step(host, progress, "neighbours"):
        neighbours = lldp.hear_neighbours(host, lldp.LISTEN_SECONDS)
    report = MetalInspectReport(
        smbios_uuid=uuid,
        topology=topology,
        storage_without_driver=_addresses(hidden, gaps),
        secure_boot=_secure_boot(host),
        uefi_variables=None if listed is None else listed[:UEFI_VARIABLES_MAX],
        neighbours=neighbours,
        firmware=firmware,
        gaps=gaps.all(),
    )
    return _fit(report)


def _disks(host: Host, topology: Topology, gaps: Gaps) -> list[Disk] | None:
    """The disks of the topology with the serials that deploy and wipe compare, and those that discovery has no name for."""
    known = {disk.name: disk for disk in topology.disks or []}
    found = found_disks(host)
    if len(found) > DISKS_MAX:
        gaps.add("disks", f"{len(found)} were found, the first {DISKS_MAX} are listed")
    for disk in found:
        if not disk.serial:
            gaps.add(disk.name, "states no serial; the machine cannot be deployed or wiped with it")
    return [
        known.get(disk.name, Disk(name=disk.name)).model_copy(
            update={
                "serial": disk.serial or None,
                "size_bytes": disk.size_bytes,
                "model": disk.model or None,
                "rotational": disk.rotational,
            }
        )
        for disk in found[:DISKS_MAX]
    ]


def _addresses(hidden: list[str], gaps: Gaps) -> list[str]:
    """The PCI addresses; of other names and of more than 32 a gap."""
    adapter = TypeAdapter(PciAddress)
    named = []
    for name in hidden:
        try:
            named.append(adapter.validate_python(name))
        except ValidationError:
            gaps.add("storage_without_driver", f"{name} shows no disk")
    if len(named) > CONTROLLERS_MAX:
        gaps.add("storage_without_driver", f"{len(named)} were found, the first {CONTROLLERS_MAX} are listed")
    return named[:CONTROLLERS_MAX]


def _secure_boot(host: Host) -> Truth | None:
    value = uefi_variables.read(host, "SecureBoot")
    return bool(value[0]) if value else None


def _fit(report: MetalInspectReport) -> MetalInspectReport:
    """The report within its bound: the PCI devices that are no GPU, disk or port are left out first, which is a gap."""
    if len(report.canonical()) <= REPORT_BYTES_MAX:
        return report
    gaps = Gaps(report.gaps)
    gaps.add("pci_devices", "the report would be too large with them")
    shorter = report.topology.model_copy(update={"pci_devices": None})
    return report.model_copy(update={"topology": shorter, "gaps": gaps.all()})
