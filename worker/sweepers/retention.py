"""Deletes operation records past their retention window and tombstones of keys that the log no longer contains."""

from __future__ import annotations

from orchestrator.keyvalue.commands import forget_deleted_keys
from orchestrator.operations.commands import retire_operations
from orchestrator.operations.execution import Context
from orchestrator.operations.live_rows import gather_counts
from worker.sweepers.metrics import SWEPT

BATCH_MAX = 1_000
BATCHES_MAX = 10


async def sweep_operations(context: Context) -> None:
    """Delete up to ten thousand expired operation records, the earliest first, and refresh the tables' row counts."""
    for _ in range(BATCHES_MAX):
        retired = await retire_operations(context, BATCH_MAX)
        SWEPT.labels("operation").inc(retired)
        if retired < BATCH_MAX:
            break
    await gather_counts(context)


async def sweep_deleted_keys(context: Context) -> None:
    """Delete up to a thousand tombstones if the earliest is old enough."""
    if await forget_deleted_keys(context, 1) > 0:
        SWEPT.labels("key").inc(await forget_deleted_keys(context, BATCH_MAX))
