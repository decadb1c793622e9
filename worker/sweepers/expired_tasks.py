"""Tasks whose time is up and whom nobody ended."""

from __future__ import annotations

import structlog

from orchestrator.operations.execution import Context
from orchestrator.problems import Problem
from orchestrator.tasks.commands.results import expire_task
from orchestrator.tasks.queries import find_expired_tasks
from worker.metrics import RESCUED, SWEEP_FAILURES

log = structlog.get_logger()


async def sweep_expired_tasks(context: Context, grace_seconds: float, limit: int) -> None:
    """End what is live more than `grace_seconds` past its expiry, the earliest first, each in its own transaction."""
    for task_id in await find_expired_tasks(context, grace_seconds, limit):
        try:
            if await expire_task(context, task_id):
                RESCUED.labels("task_expired").inc()
                log.warning("task_expired", task_id=str(task_id))
        except Problem as problem:
            SWEEP_FAILURES.labels("expired_tasks").inc()
            log.warning("rescue_failed", task_id=str(task_id), why=str(problem))
