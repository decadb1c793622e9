"""Tasks past their expiry that neither a node nor a workflow ended."""

from __future__ import annotations

import structlog

from orchestrator.allocations.commands.task_results import expire_task
from orchestrator.operations.execution import Context
from orchestrator.tasks.queries import find_expired_tasks
from worker.metrics import RESCUED
from worker.sweepers.sweeper import isolate_failure

log = structlog.get_logger()


async def expire_overdue_tasks(context: Context, grace_seconds: float, limit: int) -> None:
    """Expire at most `limit` tasks more than `grace_seconds` past their expiry, the earliest first, each in its transaction."""
    for task_id in await find_expired_tasks(context, grace_seconds, limit):
        with isolate_failure("expired_tasks", task_id=str(task_id)):
            if await expire_task(context, task_id):
                RESCUED.labels("task_expired").inc()
                log.warning("task_expired", task_id=str(task_id))
