"""Deletes operation records past their retention, tombstones of keys that the log no longer contains, and leases of VLANs."""

from __future__ import annotations

from orchestrator.keyvalue.commands import forget_deleted_keys
from orchestrator.networks.commands import free_left_vlans, mark_left_vlans
from orchestrator.networks.queries import find_regions_with_left_vlans
from orchestrator.operations.commands import retire_operations
from orchestrator.operations.execution import Context
from orchestrator.operations.live_rows import gather_counts
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_failure

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


async def sweep_left_vlans(context: Context, quarantine_seconds: float, limit: int) -> None:
    """Begin the quarantine of at most `limit` VLANs, and end at most as many leases of each region."""
    SWEPT.labels("vlan_left").inc(await mark_left_vlans(context, limit))
    for region in await find_regions_with_left_vlans(context, quarantine_seconds):
        with isolate_failure("left_vlans", region=region):
            SWEPT.labels("vlan_freed").inc(await free_left_vlans(context, region, quarantine_seconds, limit))
