"""requested -> failed, when no worker picked the allocation up before its deadline: no state waits for ever (P9)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.events import EventType
from orchestrator.domain.failures import Code
from orchestrator.domain.states import Actor, ActorKind, AllocationState
from orchestrator.domain.waits import Wait
from orchestrator.execution import Context, transact
from orchestrator.store.allocations import Change, advance_if, lock_allocation
from orchestrator.store.claims import end_right
from orchestrator.store.database import Transaction


async def fail_unstarted(context: Context, allocation_id: UUID) -> bool:
    """Fail it if it is still requested and its deadline has passed, judged after its locks; answers whether it did.

    Its units stay occupied until a cleanup is proven, although nothing was started (P6).
    """
    return await transact(context, lambda tx: _fail(context, tx, allocation_id))


async def _fail(context: Context, tx: Transaction, allocation_id: UUID) -> bool:
    subject = await lock_allocation(tx, allocation_id)
    if subject is None or subject.state is not AllocationState.REQUESTED:
        return False
    if subject.seconds_until(subject.waits_until) > 0:
        return False
    detail = "no worker could start it before its deadline"
    fence = await end_right(tx, subject.claim_id, Wait.CLEANUP, context.limits.requested_seconds_max)
    change = Change(
        AllocationState.FAILED,
        fence,
        EventType.PROVISIONING_FAILED,
        {"node_id": subject.node_id},
        code=Code.NOT_STARTED,
        detail=detail,
    )
    await advance_if(tx, subject, change, Actor(ActorKind.WORKER, "sweeper"))
    return True
