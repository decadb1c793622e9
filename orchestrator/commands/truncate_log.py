"""Drop the log's oldest partition, if it is old enough and nobody needs it (P13; docs/retention.md)."""

from __future__ import annotations

from orchestrator.crash_points import CrashPoint, reach
from orchestrator.execution import Context
from orchestrator.store import truncation
from orchestrator.store.truncation import Truncation


async def truncate_log(context: Context, *, age_seconds: float, versions_min: int) -> Truncation:
    """What became of it. Readers and writers are kept waiting for 50 ms at most; then it is `busy`: try again."""
    async with context.database.transaction() as tx:
        done = await truncation.truncate(tx, age_seconds=age_seconds, versions_min=versions_min)
        if done is Truncation.DROPPED:
            reach(CrashPoint.TRUNCATE_LOG_BEFORE_COMMIT)
    if done is Truncation.DROPPED:
        reach(CrashPoint.TRUNCATE_LOG_AFTER_COMMIT)
    return done
