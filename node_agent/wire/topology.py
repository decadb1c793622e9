"""What a node is made of: the result of `slice.topology_discover`.

A field or list that could not be read is absent, and `gaps` names the subject and the reason; an empty list says that nothing
is there. Lists are in the order of their addresses, so that equal hardware gives equal bytes. A PCI address has the spelling
of sysfs: `0000:0f:00.0`.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from node_agent.wire.fields import Truth, Whole, Wire, whole

GPUS_MAX: Final = 64
NICS_MAX: Final = 32
DISKS_MAX: Final = 40
PCI_DEVICES_MAX: Final = 256
NUMA_NODES_MAX: Final = 16
GAPS_MAX: Final = 24
TEXT_MAX: Final = 64
NAME_MAX: Final = 32
REASON_MAX: Final = 120
TOPOLOGY_BYTES_MAX: Final = 60 * 1024
"""Below the bound of a result: the envelope of the report comes on top."""

PCI_ADDRESS: Final = r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]$"

Text = Annotated[str, Field(min_length=1, max_length=TEXT_MAX, pattern=r"^[\x20-\x7e]*$")]
Name = Annotated[str, Field(min_length=1, max_length=NAME_MAX, pattern=r"^[\x20-\x7e]*$")]
PciAddress = Annotated[str, Field(pattern=PCI_ADDRESS)]
PciId = Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")]
"""Vendor and device."""
Index = Annotated[int, Field(strict=True, ge=0, le=65_535), BeforeValidator(whole)]
Number = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1), BeforeValidator(whole)]
WipeMethod = Literal["overwrite", "write_zeroes", "discard"]


class Processors(Wire):
    """All processors of the node; `threads` are those that are online."""

    architecture: Text
    model: Text | None = None
    sockets: Number | None = None
    cores: Number | None = None
    threads: Number | None = None


class NumaNode(Wire):
    """One NUMA node: its processors as a list like `0-31,64-95`."""

    number: Index
    processors: Text | None = None
    memory_bytes: Whole | None = None


class PciDevice(Wire):
    """A device on the PCI bus that is no bridge. `pci_class` is the class code of the PCI specification, six digits."""

    address: PciAddress
    pci_id: PciId
    pci_class: Annotated[str, Field(pattern=r"^[0-9a-f]{6}$")]
    driver: Name | None = None
    numa_node: Index | None = None
    iommu_group: Index | None = None


class Gpu(Wire):
    """A GPU: where it is by sysfs, what it is by NVML.

    NVML sees only GPUs that the driver `nvidia` holds; of one that is passed through to a guest, `model` to `nvlinks_up` are
    absent. `lost`: its driver holds it, and NVML does not answer for it.
    """

    address: PciAddress
    pci_id: PciId | None = None
    driver: Name | None = None
    numa_node: Index | None = None
    iommu_group: Index | None = None
    lost: Truth = False
    model: Text | None = None
    uuid: Text | None = None
    serial: Text | None = None
    firmware: Text | None = None
    memory_bytes: Whole | None = None
    mig_enabled: Truth | None = None
    mig_instances: Index | None = None
    nvlinks: Index | None = None
    nvlinks_up: Index | None = None


class Nic(Wire):
    """A network port of the machine; interfaces without a device are left out."""

    name: Name
    address: PciAddress | None = None
    mac: Annotated[str, Field(pattern=r"^[0-9a-f]{2}(:[0-9a-f]{2}){5,19}$")] | None = None
    driver: Name | None = None
    numa_node: Index | None = None
    link_up: Truth | None = None
    speed_mbps: Number | None = None


class Disk(Wire):
    """A whole disk. `wipe_methods` are those that the kernel offers for it."""

    name: Name
    model: Text | None = None
    serial: Text | None = None
    size_bytes: Whole | None = None
    rotational: Truth | None = None
    numa_node: Index | None = None
    wipe_methods: Annotated[list[WipeMethod], Field(max_length=3)] = Field(default_factory=list)


class Firmware(Wire):
    """What DMI says of the machine, and the kernel that runs."""

    vendor: Text | None = None
    product: Text | None = None
    serial: Text | None = None
    bios_vendor: Text | None = None
    bios_version: Text | None = None
    bios_date: Text | None = None
    boot_mode: Literal["uefi", "bios"] | None = None
    kernel: Text | None = None


class TrustedModule(Wire):
    """The TPM: `version` is its major version, 2 for TPM 2.0."""

    version: Number | None = None
    description: Text | None = None


class Gap(Wire):
    """Something that could not be read, and why."""

    subject: Text
    reason: Annotated[str, Field(min_length=1, max_length=REASON_MAX, pattern=r"^[\x20-\x7e]*$")]


class Topology(Wire):
    """The whole node. `gaps` are bounded: the last one says that more were left out."""

    driver: Name
    processors: Processors
    memory_bytes: Whole | None = None
    numa_nodes: Annotated[list[NumaNode], Field(max_length=NUMA_NODES_MAX)] | None = None
    gpus: Annotated[list[Gpu], Field(max_length=GPUS_MAX)] | None = None
    nics: Annotated[list[Nic], Field(max_length=NICS_MAX)] | None = None
    disks: Annotated[list[Disk], Field(max_length=DISKS_MAX)] | None = None
    pci_devices: Annotated[list[PciDevice], Field(max_length=PCI_DEVICES_MAX)] | None = None
    firmware: Firmware = Firmware()
    tpm: TrustedModule | None = None
    nvml_driver: Text | None = None
    gaps: Annotated[list[Gap], Field(max_length=GAPS_MAX)] = Field(default_factory=list)

    def canonical(self) -> bytes:
        """The JSON that `digest` hashes: members sorted, absent fields left out, no white space."""
        content = self.model_dump(mode="json", exclude_none=True)
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()

    def digest(self) -> str:
        """SHA-256 of `canonical`, hexadecimal: what an operator approves."""
        return hashlib.sha256(self.canonical()).hexdigest()
