"""Devices on the PCI bus, and the GPUs among them."""

from __future__ import annotations

from collections.abc import Sequence

from node_agent.discovery.reading import Tree, pci_address
from node_agent.wire.topology import GPUS_MAX, PCI_DEVICES_MAX, Gpu, PciDevice

NVIDIA = "10de"
DEVICES = "sys/bus/pci/devices"
_BRIDGE = "06"
_DISPLAY = "03"
_ACCELERATOR = "12"
_GPU_VENDORS = (NVIDIA, "1002")


def pci_devices(tree: Tree) -> list[PciDevice] | None:
    """Every device that is no bridge, by address; None if the bus cannot be listed."""
    names = tree.names(DEVICES)
    if names is None:
        return None
    found = [device for name in names if (device := _device(tree, name)) is not None]
    return sorted(found, key=lambda device: device.address)


def bounded_devices(tree: Tree, devices: Sequence[PciDevice]) -> list[PciDevice]:
    """As many devices as a topology may list."""
    if len(devices) > PCI_DEVICES_MAX:
        tree.gaps.add("pci_devices", f"{len(devices)} were found, the first {PCI_DEVICES_MAX} are listed")
    return list(devices[:PCI_DEVICES_MAX])


def gpus(tree: Tree, devices: Sequence[PciDevice]) -> list[Gpu]:
    """The GPUs among the devices: display controllers of the vendors of GPUs, and processing accelerators of NVIDIA and AMD."""
    found = [device for device in devices if _is_gpu(device)]
    if len(found) > GPUS_MAX:
        tree.gaps.add("gpus", f"{len(found)} were found, the first {GPUS_MAX} are listed")
    return [
        Gpu(
            address=device.address, pci_id=device.pci_id, driver=device.driver, numa_node=device.numa_node,
            iommu_group=device.iommu_group,
        )
        for device in found[:GPUS_MAX]
    ]  # fmt: skip


def _device(tree: Tree, name: str) -> PciDevice | None:
    directory = f"{DEVICES}/{name}"
    address = pci_address(name)
    vendor, device, kind = (
        tree.number(f"{directory}/{file}", most)
        for file, most in (("vendor", 0xFFFF), ("device", 0xFFFF), ("class", 0xFFFFFF))
    )
    if address is None or vendor is None or device is None or kind is None:
        tree.gaps.add(directory, "is no PCI device that can be read")
        return None
    pci_class = f"{kind:06x}"
    if pci_class.startswith(_BRIDGE) and not pci_class.startswith("0680"):  # 0680: NVSwitch
        return None
    group = tree.link_name(f"{directory}/iommu_group")
    return PciDevice(
        address=address,
        pci_id=f"{vendor:04x}:{device:04x}",
        pci_class=pci_class,
        driver=tree.link_name(f"{directory}/driver"),
        numa_node=tree.number(f"{directory}/numa_node"),
        iommu_group=int(group) if group is not None and group.isdecimal() and len(group) < 10 else None,
    )


def _is_gpu(device: PciDevice) -> bool:
    return device.pci_id[:4] in _GPU_VENDORS and device.pci_class[:2] in (_DISPLAY, _ACCELERATOR)
