"""Reset GPUs that are out of service: requested by operators, issued and concluded by the worker."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID, uuid4

from pydantic import ValidationError

from node_agent.wire.fields import first_error
from node_agent.wire.gpu_reset import GpuResetReport
from node_agent.wire.topology import Topology
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_events
from orchestrator.nodes.gpu_resets.documents import gpu_reset_document
from orchestrator.nodes.gpu_resets.rules import (
    REQUEST_SECONDS_MAX,
    GpuResetOutcome,
    Group,
    group_of,
    in_service,
    judge,
    touched,
)
from orchestrator.nodes.refusals import GpuResetUnsupported, GpusInService
from orchestrator.nodes.states import NodeState
from orchestrator.nodes.store import burn_ins, maintenance_tasks, nodes, quarantines
from orchestrator.nodes.store import gpu_resets as store
from orchestrator.nodes.store.gpu_resets import NodeFacts, OpenGpuReset
from orchestrator.nodes.store.out_of_service import take_out_of_service
from orchestrator.nodes.store.quarantines import NewQuarantine
from orchestrator.operations.execution import Context, Done, run_once, transact
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import InvalidState, NotFound
from orchestrator.tasks.states import TaskState
from orchestrator.tenants.principals import Actor, ActorKind

_RESETTER = Actor(ActorKind.WORKER, "gpu_reset")
BY = f"{_RESETTER.kind.value}:{_RESETTER.id}"


class Advanced(StrEnum):
    """What became of an open reset."""

    ISSUED = "issued"
    RESET = "reset"
    FAILED = "failed"


async def request_gpu_reset(
    context: Context, operation: Operation, actor: Actor, node_id: UUID, slot_index: int
) -> Answer:
    """200 with the reset of the slot's GPU and of those that are reset together with it; an open one of the slot is the answer.

    Refusals: `NotFound`; `InvalidState` if the node is not reachable, its GPUs are not known, or another reset or a burn-in is
    open; `GpusInService`, `GpuResetUnsupported`.
    """

    async def effect(tx: Transaction) -> Done:
        await nodes.lock_node(tx, node_id)
        found = await store.read_open(tx, node_id)
        if found is None:
            group = await _resettable(tx, node_id, slot_index)
            by = f"{actor.kind.value}:{actor.id}"
            found = await store.insert_request(tx, node_id, group, by=by, seconds_max=REQUEST_SECONDS_MAX)
        elif slot_index not in found.slots:
            raise InvalidState(f"reset {found.id} of other slots is open; request this one after its end", state="open")
        said = {"slots": found.slots, "gpu_reset_id": str(found.id)}
        await audit.record(tx, actor, "node.gpu_reset", f"nodes/{node_id}", said, operation.request_id)
        return Done(200, gpu_reset_document(found), found.id)

    return await run_once(context, operation, effect, None)


async def _resettable(tx: Transaction, node_id: UUID, slot_index: int) -> Group:
    """The GPUs that a request resets. Raises its refusals."""
    facts = await store.read_facts(tx, node_id)
    if facts.state in (NodeState.RETIRED, NodeState.REGISTERED):
        raise InvalidState(f"the node is {facts.state}; it has no agent that could reset a GPU", state=facts.state)
    if slot_index >= facts.slot_count:
        raise NotFound(f"the node has no slot {slot_index}")
    if await burn_ins.read_open(tx, node_id) is not None:
        raise InvalidState("a burn-in of the node is open; request the reset after its end", state="burn_in")
    if await maintenance_tasks.read_running(tx, node_id) is not None:
        raise InvalidState(
            "the task of a maintenance window runs on the node; request the reset after its end",
            state="maintenance_task",
        )
    if not facts.reachable:
        raise InvalidState("the node is offline; start its agent first", state="offline")
    if not facts.supported:
        raise GpuResetUnsupported.by(facts.agent_version)
    group = _group(facts, slot_index)
    if group is None:
        raise InvalidState("the topology of the node does not name a GPU for each slot", state="topology_unknown")
    if group.changed is not None:
        raise InvalidState(
            f"{group.changed}; discover the node and approve its topology first", state="topology_changed"
        )
    refused = in_service(await store.read_slots(tx, node_id), group.slots, facts.clock)
    if refused:
        raise GpusInService.of(slot_index, refused)
    return group


def _group(facts: NodeFacts, slot_index: int) -> Group | None:
    if facts.found is None:
        return None
    approved = None if facts.approved is None else Topology.model_validate(facts.approved)
    return group_of(Topology.model_validate(facts.found), approved, facts.slot_count, slot_index)


async def advance_gpu_reset(context: Context, node_id: UUID, history_max: int) -> Advanced | None:
    """Issue the node's requested reset, or conclude the one that is over, evaluated after the node's lock.

    A failure that may have touched a GPU is a fault of its slot: what was out of service for maintenance alone is taken into
    quarantine, and returns after a burn-in. `history_max`: resets kept of each node. None: there is nothing to do yet.
    """

    async def work(tx: Transaction) -> Advanced | None:
        assert context.signer is not None, "only processes with a signing key issue tasks"
        await nodes.lock_node(tx, node_id)
        known = await store.read_open_with_task(tx, node_id)
        if known is None:
            return None
        facts = await store.read_facts(tx, node_id)
        if known.task_id is not None:
            return await _conclude(tx, node_id, known, facts, history_max)
        why = await _why_never(tx, node_id, known, facts)
        if why is not None:
            return await _end(tx, node_id, known, GpuResetOutcome.FAILED, why, None, history_max)
        if not facts.reachable:
            return None
        group = _group(facts, known.slots[0])
        serials = {} if group is None else group.serials
        await store.issue(tx, context.signer, node_id, known, facts, serials)
        return Advanced.ISSUED

    return await transact(context, work)


async def _why_never(tx: Transaction, node_id: UUID, known: OpenGpuReset, facts: NodeFacts) -> str | None:
    """Why the task of a request is not issued any more."""
    if facts.state is NodeState.RETIRED:
        return "node_retired: the node is retired"
    if known.waits_until <= facts.clock:
        return "node_offline: the node was not online in time"
    if facts.reachable and not facts.supported:
        return f"gpu_reset_unsupported: the node's agent (version {facts.agent_version}) has no GPU reset"
    group = _group(facts, known.slots[0])
    if group is None or (list(group.slots), list(group.gpus)) != (known.slots, known.gpus):
        return "topology_changed: other GPUs are reset together now; request the reset again"
    if group.changed is not None:
        return f"topology_changed: {group.changed}"
    refused = in_service(await store.read_slots(tx, node_id), known.slots, facts.clock)
    return f"gpus_in_service: {GpusInService.sentence(refused)}" if refused else None


async def _conclude(
    tx: Transaction, node_id: UUID, known: OpenGpuReset, facts: NodeFacts, history_max: int
) -> Advanced | None:
    if known.task_state in (TaskState.QUEUED, TaskState.DISPATCHED):
        return None
    if known.task_state is not TaskState.COMPLETED:
        never_read = known.task_state is TaskState.EXPIRED and not known.task_dispatched
        if not known.task_refused and not never_read:
            await _take_as_faulty(tx, node_id, known, dict.fromkeys(known.gpus, known.task_failure))
        return await _end(tx, node_id, known, GpuResetOutcome.FAILED, known.task_failure, None, history_max)
    try:
        report = GpuResetReport.model_validate(known.result)
    except ValidationError as error:
        why = f"bad_report: the result is no report of a reset: {first_error(error)}"
        await _take_as_faulty(tx, node_id, known, dict.fromkeys(known.gpus, why))
        return await _end(tx, node_id, known, GpuResetOutcome.FAILED, why, None, history_max)
    group = _group(facts, known.slots[0])
    outcome, failure = judge(report, known.gpus, {} if group is None else group.serials)
    details = {one.address: f"{one.outcome}: {one.evidence}".rstrip(": ") for one in report.gpus}
    if outcome is GpuResetOutcome.RESET:
        await store.note_in_history(tx, node_id, known.id, details, BY)
    elif touched(report):
        await _take_as_faulty(tx, node_id, known, details)
    return await _end(tx, node_id, known, outcome, failure, report.canonical(), history_max)


async def _take_as_faulty(tx: Transaction, node_id: UUID, known: OpenGpuReset, details: dict[str, str]) -> None:
    """A reset that is not proven may have left the GPUs in any state: their slots return after a burn-in alone."""
    await store.note_in_history(tx, node_id, known.id, details, BY)
    slots = [one for one in await store.read_slots(tx, node_id) if one.slot_index in known.slots]
    reason = "the reset of its GPU is not proven"
    begun = [NewQuarantine(one.slot_index, one.unit, reason, None) for one in slots if not one.quarantined]
    await take_out_of_service(tx, node_id, begun, _RESETTER, "operator")
    await quarantines.note_faults(tx, node_id, known.slots)


async def _end(
    tx: Transaction, node_id: UUID, known: OpenGpuReset, outcome: GpuResetOutcome, failure: str | None, report: bytes | None,
    history_max: int,
) -> Advanced:  # fmt: skip
    await store.end(tx, node_id, known.id, outcome, failure, report, history_max)
    ended = {
        "node_id": node_id,
        "gpu_reset_id": known.id,
        "slots": known.slots,
        "outcome": outcome.value,
        "failure": failure,
    }
    await append_events(tx, [Event(EventType.NODE_GPU_RESET_ENDED, f"nodes/{node_id}", uuid4(), None, ended)])
    return Advanced(outcome.value)
