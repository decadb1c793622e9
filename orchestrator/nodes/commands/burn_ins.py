"""Burn a node in before its slots return from quarantine: requested by operators, issued and concluded by the worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID, uuid4

from pydantic import ValidationError

from berth.process.json_objects import JsonObject
from node_agent.wire.burn_in import BurnInReport
from node_agent.wire.fields import first_error
from node_agent.wire.layout import layout_of
from node_agent.wire.topology import Topology
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_events
from orchestrator.nodes.burn_ins.documents import burn_in_document
from orchestrator.nodes.burn_ins.rules import (
    REQUEST_SECONDS_MAX,
    BurnInOutcome,
    ReturnPolicy,
    judge,
    plan,
    refusal,
)
from orchestrator.nodes.refusals import BurnInUnsupported
from orchestrator.nodes.states import NodeState
from orchestrator.nodes.store import burn_ins as store
from orchestrator.nodes.store import gpu_resets, maintenance_tasks, nodes, probes, quarantines
from orchestrator.nodes.store.burn_ins import OpenBurnIn
from orchestrator.operations.execution import Context, Done, run_once, transact
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import InvalidState
from orchestrator.tasks.states import TaskState
from orchestrator.tenants.principals import Actor, ActorKind

BURN_IN = Actor(ActorKind.WORKER, "burn_in")
NOTE = "its burn-in passed"


class Advanced(StrEnum):
    """What became of an open burn-in."""

    ISSUED = "issued"
    PASSED = "passed"
    RETURNED = "returned"
    FAULTY = "faulty"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class BurnInPolicy:
    """How long a node has, how many ended burn-ins are kept of each, and whether a pass returns the slots."""

    seconds_max: float
    history_max: int
    returns: ReturnPolicy


async def request_burn_in(
    context: Context, operation: Operation, actor: Actor, node_id: UUID, slot_index: int | None
) -> Answer:
    """200 with the burn-in of a slot, or of every slot of the node that is in quarantine without an allocation.

    If one is open that tests the slot, that one is the answer, and nothing changes. Refusals: `NotFound`, `InvalidState` if
    the node is not reachable, nothing can be tested, or another burn-in is open, `BurnInUnsupported`.
    """

    async def effect(tx: Transaction) -> Done:
        state = await nodes.lock_node(tx, node_id)
        found = await store.read_open(tx, node_id)
        if found is None:
            slots = await _testable(tx, node_id, state, slot_index)
            by = f"{actor.kind.value}:{actor.id}"
            found = await store.insert_request(tx, node_id, slots, by=by, seconds_max=REQUEST_SECONDS_MAX)
        elif slot_index is not None and slot_index not in found.slots:
            raise InvalidState(
                f"burn-in {found.id} of other slots is open; request this one after its end", state="open"
            )
        said = {"slots": found.slots, "burn_in_id": str(found.id)}
        await audit.record(tx, actor, "node.burn_in", f"nodes/{node_id}", said, operation.request_id)
        return Done(200, burn_in_document(found), found.id)

    return await run_once(context, operation, effect, None)


async def _testable(tx: Transaction, node_id: UUID, state: NodeState, slot_index: int | None) -> Sequence[int]:
    """The slots that a request tests. Raises its refusals."""
    if state in (NodeState.RETIRED, NodeState.REGISTERED):
        raise InvalidState(f"the node is {state}; it has no agent that could test it", state=state)
    slots = await store.read_slots(tx, node_id)
    planned = plan(slots, None if slot_index is None else [slot_index])
    if planned is None:
        raise refusal(slots, slot_index)
    if await gpu_resets.read_open(tx, node_id) is not None:
        raise InvalidState("a reset of GPUs of the node is open; request the burn-in after its end", state="gpu_reset")
    if await maintenance_tasks.read_running(tx, node_id) is not None:
        raise InvalidState(
            "the task of a maintenance window runs on the node; request the burn-in after its end",
            state="maintenance_task",
        )
    reachable, supported, version = await store.read_agent(tx, node_id)
    if not reachable:
        raise InvalidState("the node is offline; start its agent first", state="offline")
    if not supported:
        raise BurnInUnsupported.by(version)
    return planned.slots


async def advance_burn_in(context: Context, node_id: UUID, policy: BurnInPolicy) -> Advanced | None:
    """Issue the node's requested burn-in, or conclude the one that is over, evaluated after the node's lock.

    With the policy `automatic`, the slots of one that passed serve again from the commit on, unless a later fault or another
    reason keeps them out. None: there is nothing to do yet.
    """

    async def work(tx: Transaction) -> Advanced | None:
        assert context.signer is not None, "only processes with a signing key issue tasks"
        await nodes.lock_node(tx, node_id)
        known = await store.read_open_with_task(tx, node_id)
        if known is None:
            return None
        if known.task_id is not None:
            return await _conclude(tx, node_id, known, policy)
        why = _why_never(known)
        if why is not None:
            return await _end(tx, node_id, known, BurnInOutcome.FAILED, why, None, policy)
        if not known.reachable:
            return None
        planned = plan(await store.read_slots(tx, node_id), known.slots)
        if planned is None:
            why = "none of its slots is in quarantine without an allocation any more"
            return await _end(tx, node_id, known, BurnInOutcome.FAILED, why, None, policy)
        gpus = _gpus(known, planned.slots)
        await store.issue(tx, context.signer, node_id, known, planned, gpus, policy.seconds_max)
        return Advanced.ISSUED

    return await transact(context, work)


def _why_never(known: OpenBurnIn) -> str | None:
    """Why the task of a request is not issued any more."""
    if known.state is NodeState.RETIRED:
        return "the node is retired"
    if known.waits_until <= known.clock:
        return "the node was not online in time"
    if known.reachable and not known.supported:
        return f"the node's agent (version {known.agent_version}) has no burn-in"
    return None


def _gpus(known: OpenBurnIn, slots: Sequence[int]) -> list[str]:
    """The PCI addresses of the slots' GPUs; none if the topology does not name one for each slot."""
    layout = None if known.topology is None else layout_of(Topology.model_validate(known.topology))
    if layout is None or len(layout.addresses) != known.slot_count:
        return []
    return [layout.addresses[slot] for slot in slots]


async def _conclude(tx: Transaction, node_id: UUID, known: OpenBurnIn, policy: BurnInPolicy) -> Advanced | None:
    if known.task_state in (TaskState.QUEUED, TaskState.DISPATCHED):
        return None
    if known.task_state is not TaskState.COMPLETED:
        return await _end(tx, node_id, known, BurnInOutcome.FAILED, known.task_failure, None, policy)
    try:
        report = BurnInReport.model_validate(known.result)
    except ValidationError as error:
        why = f"the result is no burn-in report: {first_error(error)}"
        return await _end(tx, node_id, known, BurnInOutcome.FAILED, why, None, policy)
    outcome, failure = judge(report)
    return await _end(tx, node_id, known, outcome, failure, report.canonical(), policy)


async def _end(
    tx: Transaction, node_id: UUID, known: OpenBurnIn, outcome: BurnInOutcome, failure: str | None, report: bytes | None,
    policy: BurnInPolicy,
) -> Advanced:  # fmt: skip
    await store.end(tx, node_id, known.id, outcome, failure, report, policy.history_max)
    ended = {
        "node_id": node_id,
        "burn_in_id": known.id,
        "slots": known.slots,
        "outcome": outcome.value,
        "failure": failure,
    }
    events = [Event(EventType.NODE_BURN_IN_ENDED, f"nodes/{node_id}", uuid4(), None, ended)]
    returned = []
    if outcome is BurnInOutcome.PASSED and policy.returns == "automatic" and known.state is not NodeState.RETIRED:
        returned = await _return_slots(tx, node_id, known)
    events += [Event(EventType.NODE_SLOT_RETURNED, f"nodes/{node_id}", uuid4(), None, said) for said in returned]
    await append_events(tx, events)
    return Advanced.RETURNED if returned else Advanced(outcome.value)


async def _return_slots(tx: Transaction, node_id: UUID, known: OpenBurnIn) -> list[JsonObject]:
    """Return the slots that it tested; the payloads of the events."""
    assert known.issued_at is not None, "a burn-in that passed was issued"
    found = await store.find_returnable(tx, node_id, known.slots, known.issued_at)
    if not found:
        return []
    await probes.accept_counts(tx, node_id, [one.slot_index for one in found])
    by = f"{BURN_IN.kind.value}:{BURN_IN.id}"
    await quarantines.end_quarantines(tx, node_id, [one.unit for one in found], note=NOTE, by=by, burn_in_id=known.id)
    said: list[JsonObject] = [{"slot": one.slot_index, "note": NOTE, "burn_in_id": str(known.id)} for one in found]
    for one in said:
        await audit.record(tx, BURN_IN, "node.slot_return", f"nodes/{node_id}", one, None)
    return [{"node_id": node_id, **one} for one in said]
