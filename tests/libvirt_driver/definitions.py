"""A guest's directory and record, for the tests of its definition."""

from __future__ import annotations

import uuid
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, Literal

from node_agent.checks.firmware import Ovmf
from node_agent.drivers.libvirt.domain import domain_xml
from node_agent.drivers.libvirt.records import GuestDirectory, GuestRecord

ALLOCATION = uuid.UUID("7c0e0000-0000-4000-8000-000000000001")


def guest(directory: Path = Path("/guests/allocations"), **changes: Any) -> tuple[GuestDirectory, GuestRecord]:
    """A guest of slots 2 and 3."""
    values = {
        "allocation_id": ALLOCATION, "fence": 7, "slots": [3, 2], "state": "provisioning", "port": 20_022,
        "image_sha256": "0" * 64, "image_format": "qcow2", "memory_bytes": 1 << 30, "processors": 4,
        "disk_bytes": 1 << 30, **changes,
    }  # fmt: skip
    return GuestDirectory(directory / str(ALLOCATION)), GuestRecord.model_validate(values)


def defined(accelerator: Literal["kvm", "qemu"] = "qemu", ovmf: Ovmf | None = None, **changes: Any) -> ET.Element:
    """The domain of a guest."""
    return ET.fromstring(defined_xml(accelerator, ovmf, **changes))


def defined_xml(accelerator: Literal["kvm", "qemu"] = "qemu", ovmf: Ovmf | None = None, **changes: Any) -> str:
    """The same as text."""
    return domain_xml(*guest(**changes), accelerator, 64_502, "192.0.2.7", ovmf)
