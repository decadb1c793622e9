"""Active allocations that their node's inventory does not name: a note on the timeline, and nothing else (failure 27)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store import absences
from orchestrator.allocations.store.advance import lock_allocation
from orchestrator.allocations.store.timeline import note
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, transact
from orchestrator.tenants.principals import Actor, ActorKind

RECONCILER = Actor(ActorKind.WORKER, "reconciler")
CODE_MISSING = "missing_on_node"


async def note_absence(context: Context, allocation_id: UUID, inventories_min: int) -> bool:
    """Count one more complete inventory without the allocation, evaluated after the locks; return whether it was noted.

    The note is written once, at the `inventories_min`-th such inventory in a row.
    """

    async def work(tx: Transaction) -> bool:
        subject = await lock_allocation(tx, allocation_id)
        if subject is None:
            return False
        absence = await absences.count_absence(tx, allocation_id)
        if absence is None or absence.reported or absence.inventories < inventories_min:
            return False
        detail = f"missing in {absence.inventories} complete inventories of the node since {absence.since}"
        await note(tx, allocation_id, RECONCILER, CODE_MISSING, detail, subject.fence)
        await absences.mark_reported(tx, allocation_id)
        return True

    return await transact(context, work)


CODE_BACK = "back_on_node"


async def end_absence(context: Context, allocation_id: UUID) -> bool:
    """Delete an absence that is over, evaluated after the locks, and note it if it was noted before; return whether it was."""

    async def work(tx: Transaction) -> bool:
        subject = await lock_allocation(tx, allocation_id)
        if subject is not None and not await absences.is_over(tx, allocation_id):
            return False
        reported = await absences.forget_absence(tx, allocation_id)
        if reported and subject is not None and subject.state is AllocationState.ACTIVE:
            await note(
                tx,
                allocation_id,
                RECONCILER,
                CODE_BACK,
                "the node's inventory names the allocation again",
                subject.fence,
            )
        return reported

    return await transact(context, work)
