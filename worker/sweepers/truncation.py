"""The log is truncated, and who keeps it from that is measured (docs/retention.md)."""

from __future__ import annotations

import time

import structlog

from orchestrator.log.commands.retention import truncate_log
from orchestrator.log.queries import find_cursors
from orchestrator.log.store.truncation import LogCursor, LogStanding, Truncation
from orchestrator.operations.execution import Context
from worker.metrics import LOG_BLOCKED, LOG_CURSOR_LAG, LOG_KEPT, SWEPT

log = structlog.get_logger()
CURSORS_SHOWN = 20
AGAIN = frozenset({Truncation.DROPPED, Truncation.BUSY})


class LogTruncator:
    """Looks at the log's beginning every `seconds`; at once again in the next round where there may be more to drop, or
    where readers and writers were not to be waited for.
    """

    def __init__(self, context: Context, *, seconds: float, age_seconds: float, versions_min: int) -> None:
        self._context = context
        self._seconds = seconds
        self._age_seconds = age_seconds
        self._versions_min = versions_min
        self._due = float("-inf")

    async def sweep(self) -> None:
        """Drop one partition, if one is to be dropped."""
        now = time.monotonic()
        if now < self._due:
            return
        done = await truncate_log(self._context, age_seconds=self._age_seconds, versions_min=self._versions_min)
        standing, cursors = await find_cursors(self._context.database, CURSORS_SHOWN)
        _show(standing, cursors)
        if done is Truncation.DROPPED:
            SWEPT.labels("log_partition").inc()
            log.info("log_truncated", first_version=standing.first, head=standing.head)
        elif done is Truncation.HELD and cursors:
            last = cursors[0]
            log.warning(
                "log_truncation_held", kind=last.kind, name=last.name, needs_from=last.needs_from, head=standing.head
            )
        if done not in AGAIN:
            self._due = now + self._seconds


def _show(standing: LogStanding, cursors: list[LogCursor]) -> None:
    LOG_KEPT.set(standing.head - standing.first + 1)
    LOG_BLOCKED.set(0 if standing.blocked_since is None else 1)
    LOG_CURSOR_LAG.clear()
    for cursor in reversed(cursors):  # what needs the oldest version goes last, so that it stands where names are alike
        tenant = "" if cursor.tenant_id is None else str(cursor.tenant_id)
        LOG_CURSOR_LAG.labels(cursor.kind, cursor.name, tenant).set(max(0, standing.head + 1 - cursor.needs_from))
