"""End a task whose time is up and whom nobody ended: its workflow is gone, or it never had one (P9)."""

from __future__ import annotations

from uuid import UUID, uuid4

from orchestrator.execution import Context, transact
from orchestrator.store.allocations import lock_allocation
from orchestrator.store.database import Transaction
from orchestrator.store.rescuing import expire_if_overdue, find_allocation_of_task


async def expire_task(context: Context, task_id: UUID) -> bool:
    """Expire it if it is live still and overdue, judged after the locks; whether it was. Its event wakes who waits."""

    async def work(tx: Transaction) -> bool:
        allocation_id = await find_allocation_of_task(tx, task_id)
        subject = None if allocation_id is None else await lock_allocation(tx, allocation_id)
        return await expire_if_overdue(tx, task_id, uuid4() if subject is None else subject.correlation_id)

    return await transact(context, work)
