"""The health of this node: sysfs, NVML, smartctl and plugins. Never raises for what it finds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from node_agent.discovery.children import NoAnswer, ask_report
from node_agent.discovery.discover import HARDWARE_SECONDS_MAX, NVML_SECONDS_MAX, without_secrets
from node_agent.discovery.reading import Gaps
from node_agent.probes.disks import with_smart
from node_agent.probes.nvml_report import NvmlHealth
from node_agent.probes.plugins import run_plugins
from node_agent.wire.health import REPORT_BYTES_MAX, GpuHealth, HealthReport
from node_agent.wire.topology import GPUS_MAX

log = structlog.get_logger("node_agent.probes")

WITHOUT_HARDWARE = frozenset({"noop"})
"""Drivers that carry nothing out; their nodes have no hardware to read."""
_LEFT_OUT_FIRST = ("nics", "disks", "plugins", "memory", "gpus")


@dataclass(frozen=True)
class Prober:
    """Reads the health of one node, below `root`."""

    driver: str
    plugins: Path | None = None
    plugin_seconds: float = 30.0
    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=without_secrets)
    nvml_seconds: float = NVML_SECONDS_MAX

    async def probe(self) -> HealthReport:
        """Read everything, in bounded time: the parts at once, SMART after the disks are known."""
        if self.driver in WITHOUT_HARDWARE:
            return HealthReport(driver=self.driver)
        gaps = Gaps()
        hardware, plugins = await asyncio.gather(
            self._hardware(gaps), run_plugins(self.plugins, self.environment, self.plugin_seconds, gaps)
        )
        content = hardware.model_dump(exclude={"gaps", "gpus", "disks"})
        nvml = await self._nvml(gaps) if hardware.gpus is None or hardware.gpus else NvmlHealth()
        disks = None if hardware.disks is None else await with_smart(hardware.disks, self.environment, gaps)
        report = HealthReport.model_validate(
            {
                **content, "plugins": plugins, "disks": disks, "gpus": _combined(hardware.gpus, nvml),
                "nvml_driver": nvml.driver, "gaps": gaps.all(),
            }
        )  # fmt: skip
        report = fit(report)
        log.info(
            "health_probed", gpus=len(report.gpus or ()), disks=len(report.disks or ()), nics=len(report.nics or ()),
            plugins=len(report.plugins or ()), gaps=len(report.gaps),
        )  # fmt: skip
        return report

    async def _hardware(self, gaps: Gaps) -> HealthReport:
        module = "node_agent.probes.hardware"
        try:
            arguments = (self.driver, str(self.root))
            found = await ask_report(HealthReport, module, arguments, self.environment, HARDWARE_SECONDS_MAX)
        except NoAnswer as error:
            gaps.add("hardware", str(error))
            return HealthReport(driver=self.driver)
        gaps.add_all(found.gaps)
        return found

    async def _nvml(self, gaps: Gaps) -> NvmlHealth:
        try:
            found = await ask_report(NvmlHealth, "node_agent.probes.nvml", (), self.environment, self.nvml_seconds)
        except NoAnswer as error:
            gaps.add("nvml", str(error))
            return NvmlHealth()
        gaps.add_all(found.gaps)
        return found


def _combined(on_bus: list[GpuHealth] | None, nvml: NvmlHealth) -> list[GpuHealth] | None:
    """The GPUs of both sources: errors in the kernel's log by sysfs, everything else by NVML."""
    said = {gpu.address: gpu for gpu in nvml.gpus}
    if on_bus is None and not said:
        return None
    found = [
        said.pop(gpu.address).model_copy(update={"xids": gpu.xids}) if gpu.address in said else gpu
        for gpu in on_bus or ()
    ]
    return sorted([*found, *said.values()], key=lambda gpu: gpu.address)[:GPUS_MAX]


def fit(report: HealthReport) -> HealthReport:
    """The report, without as many parts as make it too large for one message; those that decide most are kept longest."""
    gaps = Gaps(report.gaps)
    for part in _LEFT_OUT_FIRST:
        if len(report.canonical()) <= REPORT_BYTES_MAX:
            break
        gaps.add(part, f"left out: the report is larger than {REPORT_BYTES_MAX} bytes")
        report = report.model_copy(update={part: None, "gaps": gaps.all()})
    return report
