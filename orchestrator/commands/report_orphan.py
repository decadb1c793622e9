"""Record what a node holds although nothing here says that it should; its slots serve nobody until it is gone (P6)."""

from __future__ import annotations

from uuid import UUID, uuid4

from orchestrator.domain.events import Event, EventType
from orchestrator.domain.orphans import slots_kept
from orchestrator.domain.states import Actor, ActorKind
from orchestrator.execution import Context, transact
from orchestrator.store import audit, nodes, orphans
from orchestrator.store.database import Transaction
from orchestrator.store.inventories import Unexplained, find_unexplained
from orchestrator.store.outbox import append_event
from orchestrator.store.timeline import note

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
    node = await nodes.read_node(tx, node_id)
    unexplained = found[0]
    if unexplained.orphan_id is not None:
        known = await orphans.read_orphan(tx, unexplained.orphan_id)
        slots = slots_kept(unexplained.slots, known.slots, node.slot_count)
        await orphans.see_again(tx, known, slots, unexplained.fence)
        return None
    slots = slots_kept(unexplained.slots, [], node.slot_count)
    orphan_id = await orphans.insert_orphan(tx, node_id, allocation_id, slots, unexplained.fence)
    told = {
        "orphan_id": orphan_id, "node_id": node_id, "name": node.name, "allocation_id": allocation_id, "slots": slots,
        "fence": unexplained.fence, "allocation_state": unexplained.allocation_state,
    }  # fmt: skip
    await append_event(tx, Event(EventType.NODE_ORPHAN_FOUND, f"nodes/{node_id}", uuid4(), None, told))
    await audit.record(tx, RECONCILER, "node.orphan_found", f"nodes/{node_id}", told, None)
    await _tell_allocation(tx, unexplained, node.name)
    return orphan_id


async def _tell_allocation(tx: Transaction, unexplained: Unexplained, node_name: str) -> None:
    """An ended allocation's own story says so too, if it was this node's."""
    if unexplained.was_here and unexplained.claim_fence is not None:
        detail = f"node {node_name} still holds it, although its cleanup was proven; its slots are out of service"
        await note(tx, unexplained.allocation_id, RECONCILER, CODE_ORPHAN_FOUND, detail, unexplained.claim_fence)
