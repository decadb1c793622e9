"""What its node did not hold is there again, or is no longer active: the absence is over."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.states import Actor, ActorKind, AllocationState
from orchestrator.execution import Context, transact
from orchestrator.store import absences
from orchestrator.store.allocations import lock_allocation
from orchestrator.store.database import Transaction
from orchestrator.store.timeline import note

RECONCILER = Actor(ActorKind.WORKER, "reconciler")
CODE_BACK = "back_on_node"


async def end_absence(context: Context, allocation_id: UUID) -> bool:
    """Forget it if it is over, judged after the locks; whether it had been reported. An active one's timeline is told."""

    async def work(tx: Transaction) -> bool:
        subject = await lock_allocation(tx, allocation_id)
        if subject is not None and not await absences.is_over(tx, allocation_id):
            return False
        reported = await absences.forget_absence(tx, allocation_id)
        if reported and subject is not None and subject.state is AllocationState.ACTIVE:
            await note(tx, allocation_id, RECONCILER, CODE_BACK, "the node holds it again", subject.fence)
        return reported

    return await transact(context, work)
