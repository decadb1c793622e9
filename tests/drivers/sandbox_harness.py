"""The sandbox driver under the suite."""

from __future__ import annotations

import hashlib
import os
import uuid
from pathlib import Path
from typing import Any

from node_agent.drivers.choice import choose_driver
from node_agent.drivers.contract import Driver, Verb
from node_agent.settings import Settings
from tests.drivers.harness import Harness, Probe
from tests.drivers.harness import Tenant as AnyTenant
from tests.drivers.sandbox_probe import SandboxProbe
from tests.node_agent.agents import Tenant

UP = ("image", "boot", "ssh_ready", "guest_marker")

VERBS = {
    Verb.STOP: ("guest_stopped",),
    Verb.START: ("boot", "ssh_ready"),
    Verb.REBOOT: ("guest_stopped", "boot", "ssh_ready"),
    Verb.REBUILD: ("guest_stopped", "wiped", "lease", *UP),
}


class FreshImages(Tenant):
    """A tenant whose every provision boots another image, so that each fetches one."""

    IMAGE_BYTES = 20_000

    def provision(self, slots: list[int], **changes: Any) -> dict[str, Any]:
        self.image = self.image.with_name(f"image-{uuid.uuid4().hex}.bin")
        self.image.write_bytes(os.urandom(self.IMAGE_BYTES))
        self.image_sha256 = hashlib.sha256(self.image.read_bytes()).hexdigest()
        return super().provision(slots, **changes)


class SandboxHarness(Harness):
    name = "sandbox"
    provision_phases = ("lease", *UP)
    release_phases = ("guest_stopped", "wiped", "leases_released")
    verbs = VERBS

    def driver(self, settings: Settings) -> Driver:
        return choose_driver(settings)

    def directory(self, state_dir: Path) -> Path:
        return state_dir / "sandbox"

    def tenant(self, directory: Path) -> FreshImages:
        return FreshImages(directory)

    def probe(self, state_dir: Path, tenant: AnyTenant) -> Probe:
        assert isinstance(tenant, Tenant)
        return SandboxProbe(self.directory(state_dir), tenant)


class NoopHarness(SandboxHarness):
    """The negative control: it claims to do all that the sandbox does, and is probed in the same way."""

    name = "noop"

    def driver(self, settings: Settings) -> Driver:
        return choose_driver(settings.model_copy(update={"agent_driver": "noop"}))
