"""When the task of a maintenance window begins on a node, and what its result means. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from berth.process.json_objects import JsonMapping
from node_agent.wire.burn_in import BurnInReport
from node_agent.wire.fields import first_error
from node_agent.wire.gpu_reset import GpuResetReport
from node_agent.wire.health import HealthReport
from node_agent.wire.maintenance import NEVER_BEGUN, MaintenancePluginReport
from node_agent.wire.topology import Topology
from orchestrator.maintenance.states import TaskKind, WindowTaskState
from orchestrator.nodes.burn_ins import rules as burn_ins
from orchestrator.nodes.gpu_resets import rules as gpu_resets
from orchestrator.nodes.gpu_resets.rules import Group, group_of
from orchestrator.nodes.probes.rules import Machine, judge, reason_for
from orchestrator.nodes.probes.thresholds import Thresholds
from orchestrator.tasks.states import TaskState

FAILURE_LENGTH_MAX: Final = 500
EVIDENCE_LENGTH_MAX: Final = 1000
NOT_PROVEN: Final = frozenset({WindowTaskState.FAILED, WindowTaskState.INTERRUPTED})
"""The task began and did not complete: its slots do not return with the window."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a task. `failure`: a code, and what was found; None if it completed."""

    state: WindowTaskState
    failure: str | None
    evidence: str | None = None

    def bounded(self) -> Verdict:
        """The same, as long as the table allows: it is cut here and nowhere else."""
        failure = None if self.failure is None else self.failure[:FAILURE_LENGTH_MAX]
        return Verdict(self.state, failure, None if self.evidence is None else self.evidence[:EVIDENCE_LENGTH_MAX])


@dataclass(frozen=True, slots=True)
class EndedTask:
    """The signed task, which is over. `state` is None if it is gone. `dispatched`: the node may have read it."""

    state: TaskState | None
    dispatched: bool
    result: JsonMapping | None
    failure_code: str | None
    failure_detail: str | None


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """By what a health report is judged."""

    accepted: Mapping[str, int]
    limits: Thresholds
    machine: Machine


def whole_group(
    found: Topology | None, approved: Topology | None, slot_count: int, slots: Sequence[int]
) -> Group | str:
    """The GPUs of these slots, which are reset together; otherwise why they cannot be: a code, and what was found."""
    if found is None:
        return "topology_unknown: the GPUs of the node are not known"
    parts = [group_of(found, approved, slot_count, slot) for slot in slots]
    groups = [one for one in parts if one is not None]
    if not groups or len(groups) < len(parts):
        return "topology_unknown: the topology of the node does not name a GPU for each slot"
    gpus = {slot: gpu for one in groups for slot, gpu in zip(one.slots, one.gpus, strict=True)}
    changed = next((one.changed for one in groups if one.changed is not None), None)
    if changed is not None:
        return f"topology_changed: {changed}"
    others = sorted(set(gpus) - set(slots))
    if others:
        return f"gpus_in_service: GPUs of slots {others}, which the window does not have, are reset together with these"
    serials = {address: serial for one in groups for address, serial in one.serials.items()}
    return Group(tuple(sorted(gpus)), tuple(gpus[slot] for slot in sorted(gpus)), serials)


def conclude(
    kind: TaskKind, ended: EndedTask, slots: Sequence[int], health: HealthLimits, group: Group | None
) -> Verdict:
    """What became of the task. `group`: what a reset was to reset."""
    if ended.state is TaskState.COMPLETED:
        try:
            return _judged(kind, ended.result, slots, health, group)
        except ValidationError as error:
            return Verdict(WindowTaskState.FAILED, f"bad_report: {first_error(error)}")
    why = f"{ended.failure_code or 'task_expired'}: {ended.failure_detail or 'the node did not report in time'}"
    if ended.failure_code == "task_refused" or (ended.state is TaskState.EXPIRED and not ended.dispatched):
        state = WindowTaskState.NOT_RUN
    else:
        state = WindowTaskState.INTERRUPTED if ended.failure_code == "interrupted" else WindowTaskState.FAILED
    return Verdict(state, why)


def _judged(
    kind: TaskKind, result: JsonMapping | None, slots: Sequence[int], health: HealthLimits, group: Group | None
) -> Verdict:
    if kind is TaskKind.PLUGIN:
        return _of_plugin(MaintenancePluginReport.model_validate(result))
    if kind is TaskKind.BURN_IN:
        return _of_burn_in(BurnInReport.model_validate(result))
    if kind is TaskKind.GPU_RESET:
        return _of_reset(GpuResetReport.model_validate(result), group)
    return _of_probe(HealthReport.model_validate(result), slots, health)


def _of_plugin(report: MaintenancePluginReport) -> Verdict:
    evidence = f"the node rebooted; {report.evidence}" if report.rebooted else report.evidence
    if report.outcome == "completed":
        return Verdict(WindowTaskState.COMPLETED, None, evidence)
    state = WindowTaskState.NOT_RUN if report.outcome in NEVER_BEGUN else WindowTaskState.FAILED
    code = "plugin_failed" if report.outcome == "failed" else report.outcome
    return Verdict(state, f"{code}: {report.plugin}: {report.evidence}", evidence)


def _of_burn_in(report: BurnInReport) -> Verdict:
    outcome, failure = burn_ins.judge(report)
    evidence = ", ".join(f"{part.name}: {part.verdict}" for part in report.parts)
    if outcome is burn_ins.BurnInOutcome.PASSED:
        return Verdict(WindowTaskState.COMPLETED, None, evidence)
    return Verdict(WindowTaskState.FAILED, f"burn_in_{outcome}: {failure}", evidence)


def _of_reset(report: GpuResetReport, group: Group | None) -> Verdict:
    evidence = ", ".join(f"{one.address}: {one.outcome}" for one in report.gpus)
    if group is None:
        return Verdict(WindowTaskState.FAILED, "topology_changed: other GPUs are reset together now", evidence)
    outcome, failure = gpu_resets.judge(report, group.gpus, group.serials)
    if outcome is gpu_resets.GpuResetOutcome.RESET:
        return Verdict(WindowTaskState.COMPLETED, None, evidence)
    state = WindowTaskState.FAILED if gpu_resets.touched(report) else WindowTaskState.NOT_RUN
    return Verdict(state, (failure or "gpu_reset_failed"), evidence)


def _of_probe(report: HealthReport, slots: Sequence[int], health: HealthLimits) -> Verdict:
    """Faults of the window's slots fail it; a counter is judged by its total, not by its increase."""
    faults = judge(report, None, health.accepted, health.limits, health.machine)
    faulty = [slot for slot in slots if any(slot in fault.slots for fault in faults)]
    gaps = f", {len(report.gaps)} parts were not read" if report.gaps else ""
    evidence = f"{len(report.gpus or ())} GPUs, {len(report.disks or ())} disks{gaps}"
    if faulty:
        return Verdict(WindowTaskState.FAILED, f"fault_found: {reason_for(faulty[0], faults)}", evidence)
    return Verdict(WindowTaskState.COMPLETED, None, evidence)
