"""requested -> failed, when no worker picked it up, or its units were not free, before its deadline: nothing waits for ever
(P9).
"""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.events import EventType
from orchestrator.domain.failures import Code
from orchestrator.domain.states import Actor, ActorKind, AllocationState
from orchestrator.domain.waits import Wait
from orchestrator.execution import Context, transact
from orchestrator.store.allocations import Change, Subject, advance_if, lock_allocation
from orchestrator.store.claims import close_claim, draw_fence, end_right
from orchestrator.store.database import Transaction


async def fail_unstarted(context: Context, allocation_id: UUID) -> Code | None:
    """Fail it if it is still requested and its deadline has passed, judged after its locks; answers the code if it did.

    Its units stay occupied until a cleanup is proven, although nothing was started (P6); those that it still waited for
    were never its own to occupy and are free, or another's.
    """
    return await transact(context, lambda tx: _fail(context, tx, allocation_id))


async def _fail(context: Context, tx: Transaction, allocation_id: UUID) -> Code | None:
    subject = await lock_allocation(tx, allocation_id)
    if subject is None or subject.state is not AllocationState.REQUESTED:
        return None
    if subject.seconds_until(subject.waits_until) > 0:
        return None
    wait_seconds = context.limits.requested_seconds_max
    if subject.waits_for is Wait.UNITS:
        code, detail = Code.UNITS_NOT_FREE, "what ran before on its units was not proven gone before its deadline"
        fence = await draw_fence(tx, subject.claim_id)
        await close_claim(tx, subject.claim_id, subject.node_id)
    else:
        code, detail = Code.NOT_STARTED, "no worker could start it before its deadline"
        fence = await end_right(tx, subject.claim_id, Wait.CLEANUP, wait_seconds)
    await advance_if(tx, subject, _change(subject, code, detail, fence), Actor(ActorKind.WORKER, "sweeper"))
    return code


def _change(subject: Subject, code: Code, detail: str, fence: int) -> Change:
    return Change(
        AllocationState.FAILED,
        fence,
        EventType.PROVISIONING_FAILED,
        {"node_id": subject.node_id},
        code=code,
        detail=detail,
    )
