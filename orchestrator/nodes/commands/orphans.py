"""Record what a node holds without a record here; its slots stay out of service until it is gone (P6)."""

from __future__ import annotations

from uuid import UUID, uuid4

from orchestrator.allocations.store.timeline import note
from orchestrator.allocations.waits import Wait
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.nodes.orphan_states import OrphanState, slots_kept
from orchestrator.nodes.store import nodes, orphans
from orchestrator.nodes.store.inventories import Unexplained, find_unexplained
from orchestrator.nodes.store.orphan_documents import orphan_document
from orchestrator.operations.execution import Context, Done, run_once, transact
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import InvalidState, NotFound
from orchestrator.tenants.principals import Actor, ActorKind

RECONCILER = Actor(ActorKind.WORKER, "reconciler")
CODE_ORPHAN_FOUND = "orphan_found"


async def report_orphan(context: Context, node_id: UUID, allocation_id: UUID) -> UUID | None:
    """Record it, or that it was seen again, if the node's newest inventory says so still, judged after the node's lock.

    Answers the id of an orphan that was not known before, else None. Nothing on the node is touched.
    """
    return await transact(context, lambda tx: _report(tx, node_id, allocation_id))


async def _report(tx: Transaction, node_id: UUID, allocation_id: UUID) -> UUID | None:
    await nodes.lock_node(tx, node_id)
    found = await find_unexplained(tx, [node_id], refresh_seconds=0, limit=1, allocation_id=allocation_id)
    if not found:
        return None
    node_name, slot_count = await orphans.read_place(tx, node_id)
    unexplained = found[0]
    if unexplained.orphan_id is not None:
        known = await orphans.read_orphan(tx, unexplained.orphan_id)
        slots = slots_kept(unexplained.slots, known.slots, slot_count)
        await orphans.see_again(tx, known, slots, unexplained.fence)
        return None
    slots = slots_kept(unexplained.slots, [], slot_count)
    orphan_id = await orphans.insert_orphan(tx, node_id, allocation_id, slots, unexplained.fence)
    described = {
        "orphan_id": orphan_id, "node_id": node_id, "name": node_name, "allocation_id": allocation_id, "slots": slots,
        "fence": unexplained.fence, "allocation_state": unexplained.allocation_state,
    }  # fmt: skip
    await append_event(tx, Event(EventType.NODE_ORPHAN_FOUND, f"nodes/{node_id}", uuid4(), None, described))
    await audit.record(tx, RECONCILER, "node.orphan_found", f"nodes/{node_id}", described, None)
    await _tell_allocation(tx, unexplained, node_name)
    return orphan_id


async def _tell_allocation(tx: Transaction, unexplained: Unexplained, node_name: str) -> None:
    """An ended allocation's own story says so too, if it was this node's."""
    if unexplained.was_here and unexplained.claim_fence is not None:
        detail = f"node {node_name} still holds it, although its cleanup was proven; its slots are out of service"
        await note(tx, unexplained.allocation_id, RECONCILER, CODE_ORPHAN_FOUND, detail, unexplained.claim_fence)


async def adopt_orphan(
    context: Context, operation: Operation, actor: Actor, node_id: UUID, orphan_id: UUID, *,
    reason: str, allocation_id: UUID | None,
) -> Answer:  # fmt: skip
    """200 with the orphan, adopted: it is left alone, and its slots stay out of service.

    With `allocation_id` it stays adopted while that allocation holds units of this node; after that an operator must
    decide again. Without, until an operator destroys it. Refusals: `NotFound`; `InvalidState` if it is being destroyed or
    gone, or the allocation holds nothing on this node.
    """

    async def effect(tx: Transaction) -> Done:
        locked = await orphans.lock_orphan(tx, orphan_id)
        if locked is None or locked.orphan.node_id != node_id:
            raise NotFound(f"there is no orphan {orphan_id} on node {node_id}")
        state = OrphanState(locked.orphan.state)
        if state not in (OrphanState.REPORTED, OrphanState.ADOPTED):
            raise InvalidState(f"an orphan that is {state} cannot be adopted", state=state)
        if allocation_id is not None and not await orphans.lives_on(tx, allocation_id, node_id):
            raise InvalidState(f"allocation {allocation_id} holds nothing on this node", state=state)
        await orphans.decide(
            tx, orphan_id, OrphanState.ADOPTED, actor, reason, waits_for=Wait.OPERATOR, adopted_for=allocation_id
        )
        described = {
            "orphan_id": orphan_id, "node_id": node_id, "name": locked.node_name,
            "allocation_id": locked.orphan.allocation_id, "adopted_for": allocation_id, "reason": reason,
        }  # fmt: skip
        event = Event(
            EventType.NODE_ORPHAN_ADOPTED,
            f"nodes/{node_id}",
            uuid4(),
            None,
            described,
            operation.key,
            operation.request_id,
        )
        await append_event(tx, event)
        await audit.record(tx, actor, "node.orphan_adopted", f"nodes/{node_id}", described, operation.request_id)
        return Done(200, orphan_document(await orphans.read_orphan(tx, orphan_id)), orphan_id)

    return await run_once(context, operation, effect, None)


ACCEPTED = 202


async def destroy_orphan(
    context: Context, operation: Operation, actor: Actor, node_id: UUID, orphan_id: UUID, *, reason: str
) -> Answer:
    """202 with the orphan, now being destroyed; repeating it changes nothing. Its slots stay out of service until then.

    Refusals: `NotFound`; `InvalidState` if it is gone already, or its node has no slots yet, which its task would name.
    """

    async def effect(tx: Transaction) -> Done:
        locked = await orphans.lock_orphan(tx, orphan_id)
        if locked is None or locked.orphan.node_id != node_id:
            raise NotFound(f"there is no orphan {orphan_id} on node {node_id}")
        state = OrphanState(locked.orphan.state)
        if state is OrphanState.DESTROYED:
            raise InvalidState("the orphan is destroyed already", state=state)
        if not locked.orphan.slots:
            raise InvalidState("its node has no slots yet: approve its topology first", state=state)
        if state is not OrphanState.DESTROYING:
            wait = context.limits.requested_seconds_max
            await orphans.decide(
                tx, orphan_id, OrphanState.DESTROYING, actor, reason, waits_for=Wait.WORKER, wait_seconds=wait
            )
        described = {
            "orphan_id": orphan_id,
            "allocation_id": locked.orphan.allocation_id,
            "from": state,
            "reason": reason,
        }
        await audit.record(tx, actor, "node.orphan_destroy", f"nodes/{node_id}", described, operation.request_id)
        return Done(ACCEPTED, orphan_document(await orphans.read_orphan(tx, orphan_id)), orphan_id)

    return await run_once(context, operation, effect, None)
