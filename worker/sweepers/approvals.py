"""Expires requests that no second operator approved in time, and deletes approvals past their retention."""

from __future__ import annotations

import structlog

from orchestrator.approvals.commands.expire import expire_approval, retire_approvals
from orchestrator.approvals.queries import find_overdue_approvals
from orchestrator.operations.execution import Context
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_failure

log = structlog.get_logger()


async def sweep_approvals(context: Context, retention_seconds: float, limit: int) -> None:
    """Expire at most `limit` requests, the earliest deadline first, each alone; delete at most `limit` ended ones."""
    for approval_id in await find_overdue_approvals(context.database, limit):
        with isolate_failure("approvals", approval_id=str(approval_id)):
            if await expire_approval(context, approval_id):
                SWEPT.labels("approval_expired").inc()
                log.info("approval_expired", approval_id=str(approval_id))
    SWEPT.labels("approval").inc(await retire_approvals(context, retention_seconds, limit))
