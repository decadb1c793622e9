"""A reset of GPUs of this node that are out of service. Never raises for what it finds.

All GPUs are checked before the first is touched, and looked at again afterwards: a reset that cannot be proven has failed.
A repetition resets again, so that one that the agent's end interrupted can be requested anew.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from node_agent.burn_in.tether import tethered
from node_agent.discovery.children import ANSWER_BYTES_MAX, NoAnswer, ask_report, run_bounded
from node_agent.discovery.discover import NVML_SECONDS_MAX, without_secrets
from node_agent.discovery.nvml_report import NvmlReport
from node_agent.discovery.reading import Gaps, printable
from node_agent.gpu_reset.functions import VFIO_DRIVERS, Function, Look, Reset
from node_agent.probes.probe import WITHOUT_HARDWARE
from node_agent.wire.gpu_reset import UNTOUCHED, GpuResetParameters, GpuResetReport, GpuResetResult, ResetOutcome
from node_agent.wire.health import EVIDENCE_MAX
from node_agent.wire.topology import Gpu

log = structlog.get_logger("node_agent.gpu_reset")

MARGIN_SECONDS = 5.0
"""Before the end of the task: what runs then is ended, so that the report arrives."""
LOOK_SECONDS_MAX = 30.0
NVIDIA_SMI = "nvidia-smi"
_NVIDIA_DRIVER = "nvidia"
_FUNCTIONS = "node_agent.gpu_reset.functions"
_IN_USE = re.compile(r"in use|being used", re.IGNORECASE)
_UNSUPPORTED = re.compile(r"not supported", re.IGNORECASE)

ReadHeld = Callable[[], Awaitable[frozenset[int] | None]]
"""Reads the slots that allocations hold within a bound; None: not known."""
Objection = tuple[ResetOutcome, str]
Known = Mapping[str, Function]


@dataclass(frozen=True)
class Seen:
    """The GPUs at one time: by sysfs, and by NVML those that the driver `nvidia` holds."""

    functions: Known
    nvml: Mapping[str, Gpu]


@dataclass(frozen=True)
class GpuReset:
    """Resets GPUs, one order at a time. `root`: the file system of the node; tests of Berth record one."""

    driver: str
    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=without_secrets)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self, order: GpuResetParameters, seconds: float, read_held: ReadHeld) -> GpuResetReport:
        """Reset every GPU of the order within these seconds, or none."""
        deadline = time.monotonic() + seconds - MARGIN_SECONDS
        async with self._one:
            gaps = Gaps()
            results = await self._results(order, deadline, await read_held(), gaps)
        report = GpuResetReport(driver=self.driver, gpus=results, gaps=gaps.all())
        log.info("gpu_reset_ended", slots=order.slots, outcomes={one.address: one.outcome for one in report.gpus})
        return report

    async def _results(
        self, order: GpuResetParameters, deadline: float, held: frozenset[int] | None, gaps: Gaps
    ) -> list[GpuResetResult]:
        wanted = list(dict.fromkeys(order.gpus))
        if self.driver in WITHOUT_HARDWARE:
            return _all(wanted, "gpu_reset_unsupported", f"the driver {self.driver} has no hardware")
        if held is None:
            return _all(wanted, "gpu_in_use", "what the node holds cannot be read")
        if held.intersection(order.slots):
            return _all(wanted, "gpu_in_use", "an allocation is on a slot of the order")
        try:
            before = await self._see(wanted, deadline, gaps)
        except NoAnswer as error:
            return _all(wanted, "gpu_reset_left_out", f"the GPUs could not be looked at: {error}")
        objections = {
            one: found for one in wanted
            if (found := self._objection(before.functions.get(one)) or _stranger(one, before, order.serials)) is not None
        }  # fmt: skip
        if not objections and time.monotonic() >= deadline:
            return _all(wanted, "gpu_reset_left_out", "the time of the task was over")
        if objections:
            others: Objection = ("gpu_reset_left_out", f"{next(iter(objections))} cannot be reset")
            return [_result(one, *objections.get(one, others), before) for one in wanted]
        failures = await self._reset(wanted, before.functions, deadline)
        if all(one in failures and failures[one][0] in UNTOUCHED for one in wanted):
            return [_result(one, *failures[one], before) for one in wanted]
        return await self._proven(wanted, before, failures, deadline, gaps)

    def _objection(self, found: Function | None) -> Objection | None:
        """Why this GPU cannot be reset now."""
        if found is None:
            return "gpu_missing", "no device is at this address"
        if found.driver == _NVIDIA_DRIVER:
            return None if self._nvidia_smi() else ("gpu_reset_unsupported", f"{NVIDIA_SMI} is not installed")
        if found.driver is not None and found.driver not in VFIO_DRIVERS:
            return "gpu_reset_unsupported", f"the driver {found.driver} holds it"
        if found.users is None:
            return "gpu_in_use", "the open files of some process cannot be read"
        if found.users:
            return "gpu_in_use", f"{found.users} processes have it open"
        return None if found.methods else ("gpu_reset_unsupported", "the kernel knows no way to reset it")

    def _nvidia_smi(self) -> str | None:
        return shutil.which(NVIDIA_SMI, path=self.environment.get("PATH"))

    async def _see(self, addresses: Sequence[str], deadline: float, gaps: Gaps) -> Seen:
        """The GPUs now. Raises NoAnswer if sysfs cannot be read; NVML that does not answer is a gap."""
        seconds = min(LOOK_SECONDS_MAX, _left(deadline))
        said = await ask_report(Look, _FUNCTIONS, ("look", str(self.root), *addresses), self.environment, seconds)
        functions = {one.address: one for one in said.functions}
        if not any(one.driver == _NVIDIA_DRIVER for one in functions.values()):
            return Seen(functions, {})
        module, seconds = "node_agent.discovery.nvml", min(NVML_SECONDS_MAX, _left(deadline))
        try:
            report = await ask_report(NvmlReport, module, (), self.environment, seconds)
        except NoAnswer as error:
            gaps.add("nvml", str(error))
            return Seen(functions, {})
        gaps.add_all(report.gaps)
        return Seen(functions, {gpu.address: gpu for gpu in report.gpus})

    async def _reset(self, addresses: Sequence[str], known: Known, deadline: float) -> dict[str, Objection]:
        """Reset them; those that failed, or were left out after a failure. Those of the driver `nvidia` are reset together."""
        of_driver = [one for one in addresses if known[one].driver == _NVIDIA_DRIVER]
        failed: dict[str, Objection] = {}
        if of_driver and (failure := await self._reset_by_driver(of_driver, deadline)) is not None:
            failed = dict.fromkeys(of_driver, failure)
        for one in addresses:
            if one in of_driver:
                continue
            if failed:
                failed[one] = ("gpu_reset_left_out", f"the reset of {next(iter(failed))} failed")
            elif (failure := await self._reset_by_kernel(one, deadline)) is not None:
                failed[one] = failure
        return failed

    async def _reset_by_driver(self, addresses: Sequence[str], deadline: float) -> Objection | None:
        command = (self._nvidia_smi() or NVIDIA_SMI, "--gpu-reset", "-i", ",".join(addresses))
        try:
            code, output = await run_bounded(tethered(*command), self.environment, _left(deadline), ANSWER_BYTES_MAX)
        except NoAnswer as error:
            return "gpu_reset_failed", f"{NVIDIA_SMI}: {error}"
        if code == 0:
            return None
        text = printable(output.decode(errors="replace"))
        evidence = f"{NVIDIA_SMI} exited with {code}: {text}"
        if len(addresses) > 1:
            # Its refusal may concern one of them, after others were reset.
            return "gpu_reset_failed", evidence
        if _IN_USE.search(text):
            return "gpu_in_use", evidence
        return ("gpu_reset_unsupported" if _UNSUPPORTED.search(text) else "gpu_reset_failed"), evidence

    async def _reset_by_kernel(self, address: str, deadline: float) -> Objection | None:
        arguments = ("reset", str(self.root), address, str(os.getpid()))
        try:
            said = await ask_report(Reset, _FUNCTIONS, arguments, self.environment, _left(deadline))
        except NoAnswer as error:
            return "gpu_reset_failed", str(error)
        if said.error is None:
            return None
        return ("gpu_reset_failed" if said.supported else "gpu_reset_unsupported"), said.error

    async def _proven(
        self, wanted: Sequence[str], before: Seen, failures: Mapping[str, Objection], deadline: float, gaps: Gaps
    ) -> list[GpuResetResult]:
        """The results after another look: device, driver and serial number are those from before, and NVML answers."""
        try:
            after = await self._see(wanted, deadline, gaps)
        except NoAnswer as error:
            why = f"the GPUs could not be looked at afterwards: {error}"
            return [_result(one, *failures.get(one, ("gpu_reset_unverified", why)), before) for one in wanted]
        found: list[GpuResetResult] = []
        for one in wanted:
            doubt = _doubt(one, before, after)
            outcome: Objection = ("reset", "") if doubt is None else ("gpu_reset_unverified", doubt)
            if one in failures:
                failed, evidence = failures[one]
                is_touched = doubt is not None and failed not in UNTOUCHED
                outcome = failed, f"{doubt}; {evidence}" if is_touched else evidence
            found.append(_result(one, *outcome, after, before.functions[one]))
        return found


def _stranger(address: str, before: Seen, serials: Mapping[str, str]) -> Objection | None:
    """Whether NVML names another serial number at this address than the order does: the host may have renumbered its devices."""
    gpu, expected = before.nvml.get(address), serials.get(address)
    if gpu is None or None in (gpu.serial, expected) or gpu.serial == expected:
        return None
    return "gpu_missing", f"another GPU is at this address: its serial number is {gpu.serial}, not {expected}"


def _doubt(address: str, before: Seen, after: Seen) -> str | None:
    """Why the reset of this GPU is not proven."""
    was, now = before.functions[address], after.functions.get(address)
    if now is None or now.pci_id is None:
        return "the device is gone" if now is None else "the device does not answer on the bus"
    if was.pci_id not in (None, now.pci_id) or now.driver != was.driver:
        return f"it was {was.pci_id} of driver {was.driver}, and is {now.pci_id} of driver {now.driver}"
    if now.driver != _NVIDIA_DRIVER:
        return None
    gpu, old = after.nvml.get(address), before.nvml.get(address)
    if gpu is None:
        return "NVML does not answer for it"
    if old is not None and (old.serial, old.uuid) != (gpu.serial, gpu.uuid):
        return f"its serial number was {old.serial} and is {gpu.serial}"
    return None


def _result(
    address: str, outcome: ResetOutcome, evidence: str, seen: Seen, function: Function | None = None
) -> GpuResetResult:
    known, gpu = function or seen.functions.get(address), seen.nvml.get(address)
    method = None
    if known is not None:
        method = NVIDIA_SMI if known.driver == _NVIDIA_DRIVER else next(iter(known.methods), None)
    return GpuResetResult(
        address=address, outcome=outcome, method=method, serial=gpu.serial if gpu is not None else None,
        evidence=printable(evidence)[:EVIDENCE_MAX],
    )  # fmt: skip


def _all(addresses: Sequence[str], outcome: ResetOutcome, evidence: str) -> list[GpuResetResult]:
    shown = printable(evidence)[:EVIDENCE_MAX]
    return [GpuResetResult(address=one, outcome=outcome, evidence=shown) for one in addresses]


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
