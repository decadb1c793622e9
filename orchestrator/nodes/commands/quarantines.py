"""Take single slots of a node out of service, and return them: audited, with an event, and kept as the slot's history."""

from __future__ import annotations

from uuid import UUID, uuid4

from berth.process.json_objects import JsonObject
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.nodes.burn_ins.rules import SOURCES
from orchestrator.nodes.quarantine_documents import quarantine_document
from orchestrator.nodes.refusals import BurnInRequired
from orchestrator.nodes.states import NodeState
from orchestrator.nodes.store import burn_ins, gpu_resets, nodes, probes
from orchestrator.nodes.store import quarantines as store
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import InvalidState, NotFound
from orchestrator.tenants.principals import Actor
from orchestrator.times import rfc3339


async def quarantine_slot(
    context: Context,
    operation: Operation,
    actor: Actor,
    node_id: UUID,
    slot_index: int,
    *,
    reason: str,
    evidence: str | None,
) -> Answer:
    """200 with the quarantine: no new claim takes the slot from the commit on; an allocation on it stays until its release.

    Of a slot that is in quarantine the answer is the open one, and nothing changes. Refusals: `NotFound` for an unknown
    node or slot, `InvalidState` for a retired node.
    """

    async def effect(tx: Transaction) -> Done:
        unit = await _lock(tx, node_id, slot_index)
        found = await store.read_open_quarantine(tx, unit)
        said: JsonObject = {"slot": slot_index, "reason": reason}
        if found is None:
            new = store.NewQuarantine(slot_index, unit, reason, evidence)
            by = f"{actor.kind.value}:{actor.id}"
            (found,) = await store.begin_quarantines(tx, node_id, [new], by=by, source="operator")
            await _announce(tx, EventType.NODE_SLOT_QUARANTINED, node_id, {**said, "source": "operator"}, operation)
        await audit.record(tx, actor, "node.slot_quarantine", f"nodes/{node_id}", said, operation.request_id)
        return Done(200, quarantine_document(found), found.id)

    return await run_once(context, operation, effect, None)


async def return_slot(
    context: Context,
    operation: Operation,
    actor: Actor,
    node_id: UUID,
    slot_index: int,
    *,
    note: str,
    without_burn_in: bool = False,
) -> Answer:
    """200 with the quarantine, ended: the slot is in service again unless an orphan or a drift keeps it out.

    The next probe is due at once; counters of the slot are a fault again by what exceeds their present value.

    Refusals: `NotFound` for an unknown node or slot, `InvalidState` if the slot is not in quarantine or is under test,
    `BurnInRequired` after a fault of the hardware, unless `without_burn_in`.
    """

    async def effect(tx: Transaction) -> Done:
        unit = await _lock(tx, node_id, slot_index)
        quarantine = await store.read_open_quarantine(tx, unit)
        if quarantine is None:
            raise InvalidState(f"slot {slot_index} is not in quarantine", state="in_service")
        burn_in_id = await _permission(tx, quarantine, without_burn_in=without_burn_in)
        await probes.accept_counts(tx, node_id, [slot_index])
        (ended,) = await store.end_quarantines(
            tx, node_id, [unit], note=note, by=f"{actor.kind.value}:{actor.id}", burn_in_id=burn_in_id
        )
        said = {"slot": slot_index, "note": note} | ({} if burn_in_id is None else {"burn_in_id": str(burn_in_id)})
        await _announce(tx, EventType.NODE_SLOT_RETURNED, node_id, said, operation)
        said |= {"without_burn_in": True} if without_burn_in else {}
        await audit.record(tx, actor, "node.slot_return", f"nodes/{node_id}", said, operation.request_id)
        return Done(200, quarantine_document(ended), ended.id)

    return await run_once(context, operation, effect, None)


async def _permission(tx: Transaction, found: store.Quarantine, *, without_burn_in: bool) -> UUID | None:
    """The burn-in after which the slot may return; None if it needs none, or an operator decides without one.

    Raises `InvalidState`, `BurnInRequired`.
    """
    since = max(found.quarantined_at, found.last_fault_at or found.quarantined_at)
    standing = await burn_ins.read_standing(tx, found.node_id, found.slot_index, since)
    if standing.testing_until is not None:
        until = rfc3339(standing.testing_until)
        raise InvalidState(f"slot {found.slot_index} is under test until {until} at the latest", state="burn_in")
    resetting = await gpu_resets.read_open(tx, found.node_id)
    if resetting is not None and found.slot_index in resetting.slots:
        raise InvalidState(
            f"GPU reset {resetting.id} of slot {found.slot_index} is open; return it after its end", state="gpu_reset"
        )
    is_faulty = found.source in SOURCES or found.last_fault_at is not None
    if standing.passed is None and is_faulty and not without_burn_in:
        raise BurnInRequired.of(found.slot_index, found.source, since, standing.failure)
    return standing.passed


async def _lock(tx: Transaction, node_id: UUID, slot_index: int) -> int:
    """Lock the node and return the unit of its slot. Raises `NotFound`, `InvalidState`."""
    state = await nodes.lock_node(tx, node_id)
    if state is NodeState.RETIRED:
        raise InvalidState("the node is retired; its slots are out of service for good", state=state)
    unit = await store.find_unit(tx, node_id, slot_index)
    if unit is None:
        raise NotFound(f"node {node_id} has no slot {slot_index}")
    return unit


async def _announce(
    tx: Transaction, event_type: EventType, node_id: UUID, said: JsonObject, operation: Operation
) -> None:
    payload = {"node_id": node_id, **said}
    event = Event(event_type, f"nodes/{node_id}", uuid4(), None, payload, operation.key, operation.request_id)
    await append_event(tx, event)
