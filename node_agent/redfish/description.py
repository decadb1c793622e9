"""What a BMC reports of its machine. Identity must be readable; parts that the BMC lacks or cannot show are empty."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from node_agent.redfish import firmware
from node_agent.redfish.contract import Disk, FirmwareItem, Manager, Nic, SystemDescription
from node_agent.redfish.documents import Document
from node_agent.redfish.machine import Machine
from node_agent.redfish.power import power_state_of
from node_agent.redfish.problems import AnswerUnreadable, Busy, NotSupported, Unreachable

NICS_MAX: Final = 128
DISKS_MAX: Final = 256
CONTROLLERS_MAX: Final = 32
GIB: Final = 1 << 30
_MAC: Final = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_Part = TypeVar("_Part")


async def describe(machine: Machine) -> SystemDescription:
    """See `Bmc.describe`."""
    system = await machine.system()
    processors = system.number("ProcessorSummary", "Count")
    memory = system.number("MemorySummary", "TotalSystemMemoryGiB")
    nothing: tuple[FirmwareItem, ...] = ()
    return SystemDescription(
        id=system.text("Id"),
        manufacturer=system.text("Manufacturer"),
        model=system.text("Model"),
        serial=system.text("SerialNumber"),
        uuid=system.text("UUID").lower(),
        bios_version=system.text("BiosVersion"),
        power_state=power_state_of(system.text("PowerState")),
        processors=None if processors is None else int(processors),
        processor_model=system.text("ProcessorSummary", "Model"),
        memory_bytes=None if memory is None else int(memory * GIB),
        nics=await _optional(lambda: _nics(machine, system), ()),
        disks=await _optional(lambda: _disks(machine, system), ()),
        firmware=await _optional(lambda: firmware.inventory(machine.session), nothing),
        manager=await _optional(lambda: _manager(machine, system), None),
        quirks=tuple(sorted(machine.session.wire.quirks)),
    )


async def _optional(read: Callable[[], Awaitable[_Part]], without: _Part) -> _Part:
    try:
        return await read()
    except (NotSupported, AnswerUnreadable, Unreachable, Busy):
        return without  # an emulator answers 500 for the storage of a machine without any


async def _nics(machine: Machine, system: Document) -> tuple[Nic, ...]:
    members, _ = await machine.session.members(system.link("EthernetInterfaces"), "network interfaces", NICS_MAX)
    found = []
    for nic in members:
        mac = (nic.text("MACAddress") or nic.text("PermanentMACAddress")).lower().replace("-", ":")
        up = {"LinkUp": True, "LinkDown": False, "NoLink": False}.get(nic.text("LinkStatus"))
        found.append(Nic(nic.text("Id"), mac if _MAC.fullmatch(mac) else "", up))
    return tuple(found)


async def _disks(machine: Machine, system: Document) -> tuple[Disk, ...]:
    controllers, _ = await machine.session.members(system.link("Storage"), "storage", CONTROLLERS_MAX)
    links = [drive.text("@odata.id") for controller in controllers for drive in controller.parts("Drives")]
    found = []
    for link in dict.fromkeys(links[:DISKS_MAX]):
        drive = await machine.session.get(link, "a drive")
        size = drive.number("CapacityBytes")
        bytes_ = None if size is None else int(size)
        found.append(
            Disk(drive.text("Id"), drive.text("Model"), drive.text("SerialNumber"), bytes_, drive.text("Protocol"))
        )
    return tuple(found)


async def _manager(machine: Machine, system: Document) -> Manager | None:
    manager = await machine.manager(system)
    return Manager(manager.text("Id"), manager.text("Model"), manager.text("FirmwareVersion"))
