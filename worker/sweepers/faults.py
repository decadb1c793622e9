"""Replacements of faulty allocations, concluded when they are active, failed or late; fault reports past their retention."""

from __future__ import annotations

import structlog

from orchestrator.allocations.commands.faults import conclude_replacement, retire_reports
from orchestrator.allocations.fault_queries import find_ended_replacements
from orchestrator.operations.execution import Context
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_failure

log = structlog.get_logger()


async def sweep_faults(context: Context, retention_seconds: float, limit: int) -> None:
    """Conclude at most `limit` replacements, the earliest deadline first; delete at most `limit` closed reports."""
    for report_id in await find_ended_replacements(context, limit):
        with isolate_failure("fault_reports", report_id=str(report_id)):
            if (outcome := await conclude_replacement(context, report_id)) is not None:
                SWEPT.labels(f"replacement_{outcome}").inc()
                log.info(f"replacement_{outcome}", report_id=str(report_id))
    SWEPT.labels("fault_reports").inc(await retire_reports(context, retention_seconds, limit))
