"""Runs one maintenance plugin at a time, with a deadline and a bounded output. Never raises for what a plugin does.

A plugin prints one JSON object, `{"outcome": "completed" | "failed", "evidence": "..."}`, and exits with 0. A plugin that reboots
the node first writes what it has done into the file `MAINTENANCE_REBOOT_FILE`: see docs/reference/fleet/maintenance-tasks.md.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID

import structlog
from pydantic import Field, ValidationError

from node_agent.burn_in.tether import tethered
from node_agent.discovery.children import NoAnswer, require_success, run_bounded
from node_agent.discovery.discover import without_secrets
from node_agent.discovery.reading import printable
from node_agent.durable_files import make_private_directory, write_durably
from node_agent.probes.plugins import OUTPUT_BYTES_MAX, require_safe
from node_agent.wire.fields import Closed, first_error
from node_agent.wire.health import EVIDENCE_MAX
from node_agent.wire.maintenance import MaintenancePluginParameters, MaintenancePluginReport

log = structlog.get_logger("node_agent.maintenance")

MARGIN_SECONDS = 5.0
"""Before the end of the task: the plugin is ended, so that the report arrives."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_DECLARATION_BYTES_MAX = 4096


class PluginAnswer(Closed):
    """What a plugin prints. Evidence is cut at 1,000 characters."""

    outcome: Literal["completed", "failed"]
    evidence: Annotated[str, Field(max_length=OUTPUT_BYTES_MAX)] = ""


@dataclass(frozen=True)
class MaintenancePlugins:
    """Runs plugins of `directory`. `notes`: a directory of the agent, in which it records what survives a reboot."""

    directory: Path | None
    notes: Path
    environment: Mapping[str, str] = field(default_factory=without_secrets)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(
        self, task_id: UUID, order: MaintenancePluginParameters, seconds: float, *, occupied: bool
    ) -> MaintenancePluginReport:
        """Run the plugin within these seconds. `occupied`: an allocation is on this node, or may be: then nothing runs."""
        deadline = time.monotonic() + seconds - MARGIN_SECONDS
        async with self._one:
            report = await self._run(task_id, order, deadline, occupied=occupied)
        log.info("maintenance_plugin_ended", plugin=order.plugin, outcome=report.outcome, task_id=str(task_id))
        return report

    async def after_restart(self, task_id: UUID, plugin: str) -> MaintenancePluginReport | None:
        """The report of a plugin that ran when an earlier agent ended; None: it was interrupted, and its effect is unknown."""
        async with self._one:
            declared = self._declared(task_id)
            begun = None
            with suppress(OSError):
                begun = self._begun_file(task_id).read_text().strip()
            if declared is None or begun is None or begun == boot_id():
                return None
            return MaintenancePluginReport(plugin=plugin, outcome="completed", evidence=declared, rebooted=True)

    async def _run(
        self, task_id: UUID, order: MaintenancePluginParameters, deadline: float, *, occupied: bool
    ) -> MaintenancePluginReport:
        name = order.plugin
        if occupied:
            return _report(name, "node_in_use", "an allocation is on this node, or its inventory is not known")
        path = None if self.directory is None else self.directory / name
        if path is None or not path.exists():
            return _report(name, "plugin_unknown", "the node has no such plugin")
        try:
            require_safe(path)
        except NoAnswer as error:
            return _report(name, "plugin_unsafe", str(error))
        self._begin(task_id)
        left = max(0.0, deadline - time.monotonic())
        environment = {
            **self.environment, "MAINTENANCE_SLOTS": ",".join(map(str, order.slots)),
            "MAINTENANCE_REBOOT_FILE": str(self._reboot_file(task_id)), "MAINTENANCE_SECONDS": str(int(left)),
        }  # fmt: skip
        try:
            code, output = await run_bounded(tethered(str(path)), environment, left, OUTPUT_BYTES_MAX)
            if self._declared(task_id) is not None:
                return await self._awaited_reboot(name, deadline)
            require_success(code)
            answer = PluginAnswer.model_validate_json(output)
        except NoAnswer as error:
            return _report(name, "failed", str(error))
        except ValidationError as error:
            return _report(name, "failed", first_error(error, whole="output"))
        return _report(name, answer.outcome, answer.evidence)

    async def _awaited_reboot(self, name: str, deadline: float) -> MaintenancePluginReport:
        # A report before the reboot would give the node back while it goes down.
        await asyncio.sleep(max(0.0, deadline - time.monotonic()))
        return _report(name, "failed", "the plugin declared a reboot, and the node did not reboot in time")

    def _begin(self, task_id: UUID) -> None:
        """Record the boot id, durably, before the plugin runs; what earlier tasks left is removed. Raises OSError."""
        make_private_directory(self.notes)
        for old in self.notes.iterdir():
            old.unlink(missing_ok=True)
        write_durably(self._begun_file(task_id), boot_id().encode())

    def _declared(self, task_id: UUID) -> str | None:
        try:
            with self._reboot_file(task_id).open("rb") as file:
                said = file.read(_DECLARATION_BYTES_MAX)
        except OSError:
            return None
        return printable(said.decode(errors="replace"))[:EVIDENCE_MAX]

    def _begun_file(self, task_id: UUID) -> Path:
        return self.notes / f"{task_id}.begun"

    def _reboot_file(self, task_id: UUID) -> Path:
        return self.notes / f"{task_id}.reboot"


def boot_id() -> str:
    """The id that the kernel drew when it started. Raises OSError."""
    return _BOOT_ID.read_text().strip()


def _report(
    plugin: str,
    outcome: Literal["completed", "failed", "plugin_unknown", "plugin_unsafe", "node_in_use"],
    evidence: str,
) -> MaintenancePluginReport:
    return MaintenancePluginReport(plugin=plugin, outcome=outcome, evidence=printable(evidence)[:EVIDENCE_MAX])
