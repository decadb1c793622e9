"""Make a workflow the one that is told of an allocation's task, in the place of one that is gone."""

from __future__ import annotations

from uuid import UUID

from orchestrator.execution import Context, transact
from orchestrator.store.allocations import lock_allocation
from orchestrator.store.database import Transaction
from orchestrator.store.rescuing import Waiter, hand_over


async def take_over_wait(context: Context, seen: Waiter, workflow_id: str) -> bool:
    """Hand the wait over, if after the locks everything is as it was `seen`; whether it is, so that it may be started.

    State, row version, fence and task together say that nobody did anything meanwhile.
    """

    async def work(tx: Transaction) -> bool:
        subject = await lock_allocation(tx, seen.allocation_id)
        if subject is None:
            return False
        task_id: UUID | None = None if subject.task is None else subject.task.id
        found = (subject.state, subject.row_version, subject.fence, task_id, subject.claim_closed)
        if found != (seen.state, seen.row_version, seen.fence, seen.task_id, False):
            return False
        if subject.task is not None:
            if subject.task.notify != seen.notify:
                return False
            await hand_over(tx, subject.task.id, workflow_id)
        return True

    return await transact(context, work)
