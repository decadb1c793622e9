"""Processors, memory and devices of the host in a guest's definition."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence

from node_agent.drivers.libvirt.placement import GuestPlacement
from node_agent.drivers.libvirt.records import GuestRecord
from node_agent.wire.processors import listed_processors


def add_processors(domain: ET.Element, record: GuestRecord) -> None:
    """The guest's processors: pinned, or among those that the guests share."""
    count = ET.SubElement(domain, "vcpu", placement="static")
    count.text = str(record.processors)
    if record.placement is None:
        if record.shared_processors:
            count.set("cpuset", listed_processors(record.shared_processors))
        return
    tune = ET.SubElement(domain, "cputune")
    for number, host in enumerate(record.placement.processors()):
        ET.SubElement(tune, "vcpupin", vcpu=str(number), cpuset=str(host))
    # QEMU's own threads: what a tenant makes them do takes nothing from the host or from another guest.
    ET.SubElement(tune, "emulatorpin", cpuset=listed_processors(record.placement.processors()))


def add_memory(domain: ET.Element, record: GuestRecord) -> None:
    """The guest's memory: in huge pages, and of the NUMA nodes that its processors are on."""
    ET.SubElement(domain, "memory", unit="bytes").text = str(record.memory_bytes)
    if record.huge_page_kib:
        pages = ET.SubElement(ET.SubElement(domain, "memoryBacking"), "hugepages")
        ET.SubElement(pages, "page", size=str(record.huge_page_kib), unit="KiB")
    placement = record.placement
    if placement is None or not placement.is_bound:
        return
    tune = ET.SubElement(domain, "numatune")
    ET.SubElement(tune, "memory", mode="strict", nodeset=listed_processors(cell.numa_node for cell in placement.cells))
    if len(placement.cells) > 1:
        for number, cell in enumerate(placement.cells):
            ET.SubElement(tune, "memnode", cellid=str(number), mode="strict", nodeset=str(cell.numa_node))


def add_cells(cpu: ET.Element, placement: GuestPlacement | None) -> None:
    """NUMA nodes of the guest, if it has slots on several of the host: it then knows which memory is near."""
    if placement is None or not placement.is_bound or len(placement.cells) < 2:
        return
    numa, first = ET.SubElement(cpu, "numa"), 0
    for number, cell in enumerate(placement.cells):
        last = first + len(cell.processors)
        numbers = listed_processors(range(first, last))
        ET.SubElement(numa, "cell", id=str(number), cpus=numbers, memory=str(cell.memory_bytes), unit="bytes")
        first = last


def add_host_devices(devices: ET.Element, addresses: Sequence[str]) -> None:
    """PCI functions of the host. libvirt neither binds nor resets them by itself: the agent does, and proves it."""
    for address in addresses:
        domain, bus, rest = address.split(":")
        slot, function = rest.split(".")
        device = ET.SubElement(devices, "hostdev", mode="subsystem", type="pci", managed="no")
        ET.SubElement(device, "driver", name="vfio")
        source = ET.SubElement(device, "source")
        ET.SubElement(
            source, "address", domain=f"0x{domain}", bus=f"0x{bus}", slot=f"0x{slot}", function=f"0x{function}"
        )
        ET.SubElement(device, "rom", bar="off")
