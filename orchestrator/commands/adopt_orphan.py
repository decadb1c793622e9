"""An admin says that an orphan is to be left where it is: it belongs to an allocation of that node, or to nobody."""

from __future__ import annotations

from uuid import UUID, uuid4

from orchestrator.domain.errors import InvalidState, NotFound
from orchestrator.domain.events import Event, EventType
from orchestrator.domain.orphans import OrphanState
from orchestrator.domain.states import Actor
from orchestrator.domain.waits import Wait
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, orphans
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation
from orchestrator.store.orphan_documents import orphan_document
from orchestrator.store.outbox import append_event


async def adopt_orphan(
    context: Context, operation: Operation, actor: Actor, node_id: UUID, orphan_id: UUID, *,
    reason: str, allocation_id: UUID | None,
) -> Answer:  # fmt: skip
    """200 with the orphan, adopted: nobody touches it, and its slots stay out of service.

    With `allocation_id` it stays so for as long as that allocation holds units of this node; after that somebody has to
    decide again. Without, until somebody destroys it. Refusals: `NotFound`; `InvalidState` if it is being destroyed or
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
        told = {
            "orphan_id": orphan_id, "node_id": node_id, "name": locked.node_name,
            "allocation_id": locked.orphan.allocation_id, "adopted_for": allocation_id, "reason": reason,
        }  # fmt: skip
        event = Event(
            EventType.NODE_ORPHAN_ADOPTED, f"nodes/{node_id}", uuid4(), None, told, operation.key, operation.request_id
        )
        await append_event(tx, event)
        await audit.record(tx, actor, "node.orphan_adopted", f"nodes/{node_id}", told, operation.request_id)
        return Done(200, orphan_document(await orphans.read_orphan(tx, orphan_id)), orphan_id)

    return await run_once(context, operation, effect, None)
