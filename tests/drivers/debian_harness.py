"""Guests of QEMU with Debian's own cloud-init (`make build/guests/debian.qcow2`): two minutes for each boot by emulation."""

from __future__ import annotations

import hashlib
import os
import uuid
from pathlib import Path

from node_agent.drivers.choice import choose_driver
from node_agent.drivers.contract import Driver
from node_agent.settings import Settings
from tests.drivers.libvirt_harness import LibvirtHarness
from tests.node_agent.agents import Tenant

IMAGE_VARIABLE = "BERTH_TEST_DEBIAN_IMAGE"


class DebianGuests(Tenant):
    """A tenant whose guests boot the Debian image."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.image = directory / f"image-{uuid.uuid4().hex}.qcow2"
        self.image.symlink_to(os.environ[IMAGE_VARIABLE])
        with self.image.open("rb") as image:
            self.image_sha256 = hashlib.file_digest(image, "sha256").hexdigest()


class DebianHarness(LibvirtHarness):
    """One node with guests of Debian."""

    def unavailable(self) -> str | None:
        if (reason := super().unavailable()) is not None:
            return reason
        is_there = Path(os.environ.get(IMAGE_VARIABLE, "")).is_file()
        return None if is_there else "there is no Debian image: make build/guests/debian.qcow2"

    def driver(self, settings: Settings) -> Driver:
        changes = {
            "agent_driver": "libvirt", "guest_dir": self.directory(settings.agent_state_dir),
            "guest_memory_bytes": 768 << 20, "guest_processors": 1, "guest_disk_bytes": 4 << 30,
            "agent_readiness_seconds": 900.0,
        }  # fmt: skip
        return choose_driver(settings.model_copy(update=changes))

    def tenant(self, directory: Path) -> DebianGuests:  # type: ignore[override] # another image, the same calls
        return DebianGuests(directory)
