"""The whole topology of this node: hardware from sysfs, GPUs also from NVML. Never raises for what it finds."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from node_agent.discovery.children import NoAnswer, ask_report
from node_agent.discovery.nvml_report import NvmlReport
from node_agent.discovery.pci import NVIDIA
from node_agent.discovery.reading import Gaps
from node_agent.wire.topology import GPUS_MAX, TOPOLOGY_BYTES_MAX, Gpu, Processors, Topology

log = structlog.get_logger("node_agent.discovery")

HARDWARE_SECONDS_MAX = 30.0
NVML_SECONDS_MAX = 60.0
_NVIDIA_DRIVER = "nvidia"
_OF_NVML = frozenset(
    {"model", "uuid", "serial", "firmware", "memory_bytes", "mig_enabled", "mig_instances", "nvlinks", "nvlinks_up"}
)


async def discover(
    driver: str, root: Path = Path("/"), environment: Mapping[str, str] | None = None,
    nvml_seconds: float = NVML_SECONDS_MAX,
) -> Topology:  # fmt: skip
    """Read the hardware, ask NVML if an NVIDIA GPU may be there, and combine both."""
    environment = without_secrets() if environment is None else environment
    hardware = await _hardware(driver, root, environment)
    report = NvmlReport(answered=False)
    if hardware.gpus is None or any((gpu.pci_id or NVIDIA).startswith(NVIDIA) for gpu in hardware.gpus):
        report = await _nvml(environment, nvml_seconds)
    topology = combine(hardware, report)
    log.info(
        "topology_discovered", digest=topology.digest(), gpus=len(topology.gpus or ()), nics=len(topology.nics or ()),
        disks=len(topology.disks or ()), gaps=len(topology.gaps),
    )  # fmt: skip
    return topology


def combine(hardware: Topology, report: NvmlReport) -> Topology:
    """Add what NVML says of each GPU. One that the driver holds and NVML leaves out, although it answers, is lost."""
    gaps = Gaps(hardware.gaps)
    gaps.add_all(report.gaps)
    said = {gpu.address: gpu for gpu in report.gpus}
    gpus = [_with_nvml(gpu, said.pop(gpu.address, None), report.answered, gaps) for gpu in hardware.gpus or ()]
    gpus += said.values()
    if len(gpus) > GPUS_MAX:
        gaps.add("gpus", f"{len(gpus)} were found, the first {GPUS_MAX} are listed")
    found = None if hardware.gpus is None and not report.answered else _sorted(gpus)[:GPUS_MAX]
    return fit(hardware.model_copy(update={"gpus": found, "nvml_driver": report.driver, "gaps": gaps.all()}))


def fit(topology: Topology) -> Topology:
    """The topology, without its list of PCI devices if it would be too large for one message."""
    if len(topology.canonical()) <= TOPOLOGY_BYTES_MAX:
        return topology
    gaps = Gaps(topology.gaps)
    gaps.add("pci_devices", f"left out: the topology is larger than {TOPOLOGY_BYTES_MAX} bytes")
    return topology.model_copy(update={"pci_devices": None, "gaps": gaps.all()})


def _with_nvml(gpu: Gpu, said: Gpu | None, answered: bool, gaps: Gaps) -> Gpu:
    if said is not None:
        return gpu.model_copy(update=said.model_dump(include=set(_OF_NVML)))
    if answered and gpu.driver == _NVIDIA_DRIVER:
        gaps.add(gpu.address, "its driver holds it and NVML does not answer for it")
        return gpu.model_copy(update={"lost": True})
    return gpu


def _sorted(gpus: Sequence[Gpu]) -> list[Gpu]:
    return sorted(gpus, key=lambda gpu: gpu.address)


async def _hardware(driver: str, root: Path, environment: Mapping[str, str]) -> Topology:
    module = "node_agent.discovery.hardware"
    try:
        return await ask_report(Topology, module, (driver, str(root)), environment, HARDWARE_SECONDS_MAX)
    except NoAnswer as error:
        log.error("hardware_not_read", why=str(error))
        gaps = Gaps()
        gaps.add("hardware", str(error))
        return Topology(driver=driver, processors=Processors(architecture=os.uname().machine), gaps=gaps.all())


async def _nvml(environment: Mapping[str, str], seconds: float) -> NvmlReport:
    try:
        return await ask_report(NvmlReport, "node_agent.discovery.nvml", (), environment, seconds)
    except NoAnswer as error:
        log.error("nvml_not_read", why=str(error))
        gaps = Gaps()
        gaps.add("nvml", str(error))
        return NvmlReport(answered=False, gaps=gaps.all())


def without_secrets() -> dict[str, str]:
    """The agent's environment for programs that it starts: without its settings, which contain tokens."""
    return {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
