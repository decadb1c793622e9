"""A node tells how far its task is. For people: nothing depends on it."""

from __future__ import annotations

from uuid import UUID

from node_agent.protocol import ProgressReport
from orchestrator.domain.errors import NotFound
from orchestrator.execution import Context
from orchestrator.store.task_results import find_task_of_node
from orchestrator.store.timeline import record_progress_if_live


async def record_task_progress(context: Context, node_id: UUID, task_id: UUID, report: ProgressReport) -> bool:
    """Write phases into the timeline; False if the task no longer counts or has told enough (64 phases).

    Raises `NotFound` if the task is not that node's.
    """

    async with context.database.statement() as tx:
        if await record_progress_if_live(tx, task_id, node_id, report.fence, report.phases):
            return True
    async with context.database.glance() as reading:
        if await find_task_of_node(reading, task_id, node_id) is None:
            raise NotFound(f"this node has no task {task_id}")
    return False
