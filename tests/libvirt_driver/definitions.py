"""A guest's directory and record, for the tests of its definition."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

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
