"""Guests whose processors and memory a test sets."""

from __future__ import annotations

from typing import Any

from node_agent.drivers.choice import choose_driver
from node_agent.drivers.contract import Driver
from node_agent.settings import Settings
from tests.drivers.libvirt_harness import LibvirtHarness


class Placed(LibvirtHarness):
    """Guests under other settings of processors and memory."""

    def __init__(self, **changes: Any) -> None:
        self._changes = changes

    def driver(self, settings: Settings) -> Driver:
        changes = {
            "agent_driver": "libvirt", "guest_dir": self.directory(settings.agent_state_dir), "guest_processors": 1,
            "guest_memory_bytes": 96 << 20, "guest_disk_bytes": 1 << 30, "agent_readiness_seconds": 80.0, **self._changes,
        }  # fmt: skip
        return choose_driver(settings.model_copy(update=changes))
