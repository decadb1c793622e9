"""Drops old partitions of the log and measures which cursors prevent that (docs/reference/log-retention.md)."""

from __future__ import annotations

import structlog

from orchestrator.log.commands import truncate_log
from orchestrator.log.queries import find_cursors
from orchestrator.log.store.truncation import LogCursor, LogExtent, Truncation
from orchestrator.operations.execution import Context
from worker.metrics import LOG_BLOCKED, LOG_CURSOR_LAG, LOG_KEPT
from worker.sweepers.metrics import SWEPT

log = structlog.get_logger()
CURSORS_SHOWN = 20
RETRY_SOON = frozenset({Truncation.DROPPED, Truncation.BUSY, Truncation.STORING})
"""After a drop there may be another; while the table was locked, no lock was waited for."""


async def truncate_oldest_partition(context: Context, age_seconds: float, versions_min: int) -> bool:
    """Drop at most one partition of the log. True if the next attempt should not wait for the interval."""
    outcome = await truncate_log(context, age_seconds=age_seconds, versions_min=versions_min)
    standing, cursors = await find_cursors(context.database, CURSORS_SHOWN)
    _set_gauges(standing, cursors)
    if outcome is Truncation.DROPPED:
        SWEPT.labels("log_partition").inc()
        log.info("log_truncated", first_version=standing.first, head=standing.head)
    elif outcome is Truncation.HELD and cursors:
        oldest = cursors[0]
        log.warning(
            "log_truncation_held", kind=oldest.kind, name=oldest.name, needs_from=oldest.needs_from, head=standing.head
        )
    return outcome in RETRY_SOON


def _set_gauges(standing: LogExtent, cursors: list[LogCursor]) -> None:
    LOG_KEPT.set(standing.head - standing.first + 1)
    LOG_BLOCKED.set(0 if standing.blocked_since is None else 1)
    LOG_CURSOR_LAG.clear()
    for cursor in reversed(cursors):  # the cursor with the oldest position is set last, so it wins among equal names
        tenant = "" if cursor.tenant_id is None else str(cursor.tenant_id)
        LOG_CURSOR_LAG.labels(cursor.kind, cursor.name, tenant).set(max(0, standing.head + 1 - cursor.needs_from))
