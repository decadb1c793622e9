"""The template's driver under the suite: the class to copy for a new driver."""

from __future__ import annotations

from pathlib import Path

from node_agent.drivers.contract import Driver, Verb
from node_agent.drivers.template import TemplateDriver
from node_agent.settings import Settings
from tests.drivers.harness import Harness, Probe, Tenant
from tests.drivers.sandbox_harness import FreshImages
from tests.drivers.template_probe import TemplateProbe

NO_VERBS: dict[Verb, tuple[str, ...]] = {}


class TemplateHarness(Harness):
    name = "template"
    provision_phases = ("lease", "disk", "boot", "ready")
    release_phases = ("stopped", "wiped", "leases_released")
    verbs = NO_VERBS

    def driver(self, settings: Settings) -> Driver:
        return TemplateDriver(self.directory(settings.agent_state_dir))

    def directory(self, state_dir: Path) -> Path:
        return state_dir / "template"

    def tenant(self, directory: Path) -> Tenant:
        return FreshImages(directory)

    def probe(self, state_dir: Path, tenant: Tenant) -> Probe:
        return TemplateProbe(self.directory(state_dir))
