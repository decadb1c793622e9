"""An active allocation is not among what its node says it holds: that is told, and nothing else follows (failure 27)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.allocations.states import Actor, ActorKind, AllocationState
from orchestrator.allocations.store.advance import lock_allocation
from orchestrator.allocations.store.timeline import note
from orchestrator.database.transactions import Transaction
from orchestrator.nodes.store import absences
from orchestrator.operations.execution import Context, transact

RECONCILER = Actor(ActorKind.WORKER, "reconciler")
CODE_MISSING = "missing_on_node"


async def note_absence(context: Context, allocation_id: UUID, inventories_min: int) -> bool:
    """Count one more complete inventory without it, judged after the locks; whether its timeline has just been told.

    It is told once, at the `inventories_min`-th in a row.
    """

    async def work(tx: Transaction) -> bool:
        subject = await lock_allocation(tx, allocation_id)
        if subject is None:
            return False
        absence = await absences.count_absence(tx, allocation_id)
        if absence is None or absence.reported or absence.inventories < inventories_min:
            return False
        detail = f"the node holds nothing of it, by {absence.inventories} complete inventories since {absence.since}"
        await note(tx, allocation_id, RECONCILER, CODE_MISSING, detail, subject.fence)
        await absences.mark_reported(tx, allocation_id)
        return True

    return await transact(context, work)


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
