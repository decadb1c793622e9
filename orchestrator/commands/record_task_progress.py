"""A node tells how far its task is. For people: nothing depends on it."""

from __future__ import annotations

from uuid import UUID

from node_agent.protocol import ProgressReport
from orchestrator.domain.errors import NotFound
from orchestrator.execution import Context, transact
from orchestrator.store.database import Transaction
from orchestrator.store.task_results import find_task_of_node
from orchestrator.store.timeline import record_progress_if_live


async def record_task_progress(context: Context, node_id: UUID, task_id: UUID, report: ProgressReport) -> bool:
    """Write one phase into the timeline; False if the task no longer counts or has told enough (64 phases).

    Raises `NotFound` if the task is not that node's.
    """

    async def work(tx: Transaction) -> bool:
        if await record_progress_if_live(tx, task_id, node_id, report.fence, report.phase, report.detail):
            return True
        if await find_task_of_node(tx, task_id, node_id) is None:
            raise NotFound(f"this node has no task {task_id}")
        return False

    return await transact(context, work)
