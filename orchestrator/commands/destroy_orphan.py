"""An admin orders what nobody owns off its node. A worker issues the task; only the node's proof ends the matter (P6)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.errors import InvalidState, NotFound
from orchestrator.domain.orphans import OrphanState
from orchestrator.domain.states import Actor
from orchestrator.domain.waits import Wait
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, orphans
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation
from orchestrator.store.orphan_documents import orphan_document

ACCEPTED = 202


async def destroy_orphan(
    context: Context, operation: Operation, actor: Actor, node_id: UUID, orphan_id: UUID, *, reason: str
) -> Answer:
    """202 with the orphan, now being destroyed; repeating it changes nothing. Its slots stay out of service until then.

    Refusals: `NotFound`; `InvalidState` if it is gone already.
    """

    async def effect(tx: Transaction) -> Done:
        locked = await orphans.lock_orphan(tx, orphan_id)
        if locked is None or locked.orphan.node_id != node_id:
            raise NotFound(f"there is no orphan {orphan_id} on node {node_id}")
        state = OrphanState(locked.orphan.state)
        if state is OrphanState.DESTROYED:
            raise InvalidState("the orphan is destroyed already", state=state)
        if state is not OrphanState.DESTROYING:
            wait = context.limits.requested_seconds_max
            await orphans.decide(
                tx, orphan_id, OrphanState.DESTROYING, actor, reason, waits_for=Wait.WORKER, wait_seconds=wait
            )
        told = {"orphan_id": orphan_id, "allocation_id": locked.orphan.allocation_id, "from": state, "reason": reason}
        await audit.record(tx, actor, "node.orphan_destroy", f"nodes/{node_id}", told, operation.request_id)
        return Done(ACCEPTED, orphan_document(await orphans.read_orphan(tx, orphan_id)), orphan_id)

    return await run_once(context, operation, effect, None)
