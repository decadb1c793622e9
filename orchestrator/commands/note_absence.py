"""An active allocation is not among what its node says it holds: that is told, and nothing else follows (failure 27)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.states import Actor, ActorKind
from orchestrator.execution import Context, transact
from orchestrator.store import absences
from orchestrator.store.allocations import lock_allocation
from orchestrator.store.database import Transaction
from orchestrator.store.timeline import note

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
