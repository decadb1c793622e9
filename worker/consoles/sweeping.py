"""Consoles: tasks of sessions are issued at once, and sessions that no process ends are ended."""

from __future__ import annotations

import structlog

from orchestrator.consoles.commands import end_lost_session, forget_sessions, issue_task
from orchestrator.consoles.queries import find_lost, find_unsigned
from orchestrator.operations.execution import Context
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_failure

log = structlog.get_logger()


async def issue_consoles(context: Context, dial_seconds: float, limit: int) -> None:
    """Issue the tasks of at most `limit` sessions, the oldest first."""
    for session_id in await find_unsigned(context, limit):
        with isolate_failure("console_tasks", session_id=str(session_id)):
            if await issue_task(context, session_id, dial_seconds):
                SWEPT.labels("console_issued").inc()


async def sweep_consoles(context: Context, silent_seconds: float, retention_seconds: float, limit: int) -> bool:
    """End at most `limit` lost sessions, and forget as many old ones; whether more may be left."""
    lost = await find_lost(context, silent_seconds, limit)
    for session_id in lost:
        with isolate_failure("consoles", session_id=str(session_id)):
            if (reason := await end_lost_session(context, session_id, silent_seconds)) is not None:
                SWEPT.labels("console_lost").inc()
                log.warning("console_lost", session_id=str(session_id), reason=reason.value)
    forgotten = await forget_sessions(context, retention_seconds, limit)
    SWEPT.labels("console_forgotten").inc(forgotten)
    return len(lost) == limit or forgotten == limit
