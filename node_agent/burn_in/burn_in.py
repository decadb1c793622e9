"""A burn-in of this node: memory, disk, processors, DCGM and plugins, one after another. Never raises for what it finds."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from node_agent.burn_in.bounds import Bounds
from node_agent.burn_in.dcgm import run_dcgm
from node_agent.burn_in.disk import remove_remains
from node_agent.burn_in.tether import tethered
from node_agent.burn_in.trial import SHARED
from node_agent.burn_in.trial_report import TrialReport
from node_agent.discovery.children import ANSWER_BYTES_MAX, NoAnswer, read_report, require_success, run_bounded
from node_agent.discovery.discover import without_secrets
from node_agent.discovery.reading import Gaps, printable
from node_agent.probes.plugins import run_plugins
from node_agent.probes.probe import WITHOUT_HARDWARE
from node_agent.wire.burn_in import BurnInParameters, BurnInPart, BurnInReport, PartName
from node_agent.wire.health import EVIDENCE_MAX, PluginResult

log = structlog.get_logger("node_agent.burn_in")

MARGIN_SECONDS = 5.0
"""Before the end of the task: what runs then is ended, so that the report arrives."""
_BROKEN_MEMORY = -signal.SIGBUS  # the kernel's answer to memory that cannot be read back
_BROKEN_CORE = -signal.SIGILL


@dataclass(frozen=True)
class BurnIn:
    """Runs burn-ins, one at a time. `trial` is the module of the tests of parts; tests of Berth replace it."""

    driver: str
    bounds: Bounds
    environment: Mapping[str, str] = field(default_factory=without_secrets)
    trial: str = "node_agent.burn_in.trial"
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self, order: BurnInParameters, seconds: float, *, occupied: bool) -> BurnInReport:
        """Test everything within these seconds. `occupied`: an allocation is on this node now."""
        shared = order.shared or occupied
        if self.driver in WITHOUT_HARDWARE:
            gaps = Gaps()
            gaps.add("hardware", f"the driver {self.driver} has none")
            return BurnInReport(driver=self.driver, shared=shared, parts=[], gaps=gaps.all())
        deadline = time.monotonic() + seconds - MARGIN_SECONDS
        async with self._one:
            report = await self._run(order, deadline, shared=shared)
        log.info(
            "burn_in_ended", slots=order.slots, shared=shared, gaps=len(report.gaps),
            verdicts={part.name: part.verdict for part in report.parts},
            plugins={plugin.name: plugin.verdict for plugin in report.plugins or ()},
        )  # fmt: skip
        return report

    async def _run(self, order: BurnInParameters, deadline: float, *, shared: bool) -> BurnInReport:
        gaps, bounds = Gaps(), self.bounds
        if shared:
            gaps.add("bounds", "other slots are occupied: the smaller bounds were used")
        remove_remains(bounds.directory)
        parts = [
            await self._part("memory", bounds.memory_bytes_max, deadline, gaps, shared=shared),
            await self._part("disk", bounds.disk_bytes_max, deadline, gaps, shared=shared),
            await self._part("cpu", bounds.cpu_seconds, deadline, gaps, shared=shared),
        ]
        dcgm = await run_dcgm(bounds.dcgm_level, order.gpus, self.environment, deadline, gaps)
        plugins = await self._plugins(order, deadline, gaps, shared=shared)
        found = [*parts, *([dcgm] if dcgm is not None else [])]
        return BurnInReport(driver=self.driver, shared=shared, parts=found, plugins=plugins, gaps=gaps.all())

    async def _part(self, name: PartName, bound: float, deadline: float, gaps: Gaps, *, shared: bool) -> BurnInPart:
        left = max(0.0, deadline - time.monotonic())
        command = (
            sys.executable, "-m", self.trial, str(os.getpid()), name, str(bound), str(self.bounds.directory),
            SHARED if shared else "alone",
        )  # fmt: skip
        try:
            code, answer = await run_bounded(command, self.environment, left, ANSWER_BYTES_MAX)
            if (name, code) in (("memory", _BROKEN_MEMORY), ("cpu", _BROKEN_CORE)):
                evidence = f"the process was ended by signal {-code}"
                return BurnInPart(name=name, verdict="fault", evidence=evidence)
            require_success(code)
            report = read_report(TrialReport, answer)
        except NoAnswer as error:
            return BurnInPart(name=name, verdict="unknown", evidence=printable(str(error))[:EVIDENCE_MAX])
        gaps.add_all(report.gaps)
        return report.part

    async def _plugins(
        self, order: BurnInParameters, deadline: float, gaps: Gaps, *, shared: bool
    ) -> list[PluginResult] | None:
        # What a plugin may touch: the slots under test, and no GPU that another slot has.
        environment = {
            **self.environment, "BURN_IN_SLOTS": ",".join(map(str, order.slots)),
            "BURN_IN_GPUS": ",".join(order.gpus), "BURN_IN_SHARED": "1" if shared else "0",
        }  # fmt: skip
        left = max(0.0, deadline - time.monotonic())
        bounds = self.bounds
        seconds = min(bounds.plugin_seconds, left)
        try:
            async with asyncio.timeout(left):
                return await run_plugins(bounds.plugins, environment, seconds, gaps, tethered())
        except TimeoutError:
            gaps.add("plugins", "the time of the burn-in was over")
            return [PluginResult(name="plugins", verdict="unknown", failure="the time of the burn-in was over")]
