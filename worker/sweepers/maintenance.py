"""Starts and ends maintenance windows at their times, and deletes those past their retention."""

from __future__ import annotations

import structlog

from orchestrator.maintenance.commands.advance import advance_window, retire_windows
from orchestrator.maintenance.queries import find_due_windows
from orchestrator.operations.execution import Context
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_failure

log = structlog.get_logger()


async def sweep_maintenance(context: Context, retention_seconds: float, limit: int) -> None:
    """Start or end at most `limit` windows, the earliest first, each alone; delete at most `limit` ended ones."""
    for window_id in await find_due_windows(context.database, limit):
        with isolate_failure("maintenance", window_id=str(window_id)):
            state = await advance_window(context, window_id)
            if state is not None:
                SWEPT.labels(f"maintenance_{state}").inc()
                log.info(f"maintenance_{state}", window_id=str(window_id))
    SWEPT.labels("maintenance").inc(await retire_windows(context, retention_seconds, limit))
