"""Probe nodes, and take slots with faults out of service."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import structlog
from pydantic import ValidationError

from node_agent.wire.fields import first_error
from node_agent.wire.health import HealthReport
from node_agent.wire.layout import layout_of
from node_agent.wire.topology import Topology
from orchestrator.database.transactions import Transaction
from orchestrator.nodes.hardware.rules import PartFault
from orchestrator.nodes.probes.rules import (
    RETRY_SECONDS,
    Fault,
    Machine,
    faulty_slots,
    fresh_faults,
    judge,
    reason_for,
    still_accepted,
)
from orchestrator.nodes.probes.thresholds import Overrides, thresholds_for
from orchestrator.nodes.store import hardware, nodes, probes, quarantines
from orchestrator.nodes.store.out_of_service import take_out_of_service
from orchestrator.nodes.store.probes import EndedProbe, NodeHealth
from orchestrator.nodes.store.quarantines import NewQuarantine
from orchestrator.operations.execution import Context, transact
from orchestrator.tasks.states import TaskState
from orchestrator.tenants.principals import Actor, ActorKind

log = structlog.get_logger("probes")

PROBE = Actor(ActorKind.WORKER, "probe")
EVIDENCE_FAULTS_MAX = 8
"""Faults that the evidence of a quarantine lists in full; the report has all."""


class Taken(StrEnum):
    """What became of a probe."""

    FAILED = "failed"
    HEALTHY = "healthy"
    FAULTY = "faulty"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class ProbePolicy:
    """How reports are judged and kept."""

    interval_seconds: float
    history_max: int
    thresholds: Overrides


async def issue_probe(context: Context, node_id: UUID, interval_seconds: float) -> UUID | None:
    """Issue the node's probe if it is due, evaluated after the node's lock; return the task's id."""

    async def work(tx: Transaction) -> UUID | None:
        assert context.signer is not None, "only processes with a signing key issue tasks"
        await nodes.lock_node(tx, node_id)
        due = await probes.read_due_probe(tx, node_id)
        if due is None:
            return None
        return await probes.issue_probe(tx, context.signer, node_id, due, interval_seconds)

    return await transact(context, work)


async def take_probe(context: Context, node_id: UUID, policy: ProbePolicy) -> Taken | None:
    """Record the result of the node's ended probe, evaluated after the node's lock; None if none has ended.

    A slot with a fault is in quarantine from the commit on. One that is already, or was returned after the probe was issued,
    is left as it is.
    """

    async def work(tx: Transaction) -> Taken | None:
        await nodes.lock_node(tx, node_id)
        ended = await probes.read_ended_probe(tx, node_id)
        return None if ended is None else await _take(tx, node_id, ended, policy)

    return await transact(context, work)


async def _take(tx: Transaction, node_id: UUID, ended: EndedProbe, policy: ProbePolicy) -> Taken:
    if ended.state is not TaskState.COMPLETED:
        await probes.record_failure(tx, node_id, ended.failure or "its task is gone", RETRY_SECONDS)
        return Taken.FAILED
    try:
        report = HealthReport.model_validate(ended.result)
    except ValidationError as error:
        await probes.record_failure(tx, node_id, f"the result is no health report: {first_error(error)}", RETRY_SECONDS)
        return Taken.FAILED
    known = await probes.read_health(tx, node_id)
    assert known is not None, "an open probe has a row"
    limits, machine = thresholds_for(policy.thresholds, ended.gpu_model), _machine(ended)
    accepted = still_accepted(report, known.accepted, limits, machine)
    faults = judge(report, _previous(known), accepted, limits, machine)
    await probes.record_report(tx, node_id, report.canonical(), faults, accepted, policy.history_max)
    fresh = fresh_faults(faults, known.faults)
    await _note(tx, node_id, fresh)
    if slots := faulty_slots(fresh):
        await quarantines.note_faults(tx, node_id, slots)
    taken = await _quarantine(tx, node_id, faults, ended.issued_at)
    if taken:
        return Taken.QUARANTINED
    return Taken.FAULTY if faults else Taken.HEALTHY


async def _note(tx: Transaction, node_id: UUID, fresh: Sequence[Fault]) -> None:
    """Record these faults in the history of the hardware, each at most once a day."""
    written = [
        PartFault(fault.subject, fault.cause.value, f"found {fault.found}, threshold {fault.limit}") for fault in fresh
    ]
    if left_out := await hardware.note_faults(tx, node_id, written, PROBE):
        log.warning("hardware_left_out", node_id=str(node_id), entries=left_out)


async def _quarantine(tx: Transaction, node_id: UUID, faults: Sequence[Fault], issued_at: datetime) -> list[int]:
    """Take the slots of these faults out of service; return those that were not yet."""
    new = [
        NewQuarantine(slot_index, unit, reason_for(slot_index, faults), _evidence(slot_index, faults))
        for slot_index, unit in await probes.find_sound_slots(tx, node_id, faulty_slots(faults), issued_at)
    ]
    await take_out_of_service(tx, node_id, new, PROBE, "probe")
    return [one.slot_index for one in new]


def _previous(known: NodeHealth) -> HealthReport | None:
    try:
        return None if known.report is None else HealthReport.model_validate(known.report)
    except ValidationError:  # of an earlier version of the report
        return None


def _machine(ended: EndedProbe) -> Machine:
    layout = None if ended.topology is None else layout_of(Topology.model_validate(ended.topology))
    # GPUs that are not as many as the slots have no known slot.
    fits = layout is not None and len(layout.addresses) == ended.slot_count
    return Machine(ended.slot_count, layout.addresses if layout is not None and fits else ())


def _evidence(slot_index: int, faults: Sequence[Fault]) -> str:
    own = [asdict(fault) for fault in faults if slot_index in fault.slots]
    lines = [
        json.dumps({**fault, "slots": list(fault["slots"])}, sort_keys=True) for fault in own[:EVIDENCE_FAULTS_MAX]
    ]
    if len(own) > len(lines):
        lines.append(f"and {len(own) - len(lines)} more")
    return "\n".join(lines)
