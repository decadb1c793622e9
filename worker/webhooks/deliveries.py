"""Deletes old webhook deliveries, disables webhooks of expired keys, and measures how webhooks are doing."""

from __future__ import annotations

from orchestrator.operations.execution import Context
from orchestrator.webhooks.commands.dispatch import disable_expired_webhooks, sweep_deliveries
from orchestrator.webhooks.queries import count_webhooks
from worker.sweepers.metrics import SWEPT
from worker.webhooks.metrics import (
    WEBHOOK_DELIVERIES_PENDING,
    WEBHOOK_LAG_VERSIONS,
    WEBHOOK_OLDEST_DUE_SECONDS,
    WEBHOOKS,
    WEBHOOKS_DISABLED,
)

BATCH_MAX = 1_000
BATCHES_MAX = 10
INTERVAL_SECONDS = 15.0
EXPIRED_MAX = 100
"""Webhooks that one transaction disables."""


async def sweep_webhook_deliveries(context: Context, retention_seconds: float, kept_max: int) -> None:
    """Delete up to ten thousand finished deliveries and set the gauges of webhooks.

    A delivery is deleted `retention_seconds` after its end, or when its webhook has more than `kept_max`.
    """
    for _ in range(BATCHES_MAX):
        deleted = await sweep_deliveries(context, seconds=retention_seconds, kept=kept_max, limit=BATCH_MAX)
        SWEPT.labels("webhook_delivery").inc(deleted)
        if deleted < BATCH_MAX:
            break
    counts = await count_webhooks(context.database)
    WEBHOOKS.labels("enabled").set(counts.enabled)
    WEBHOOKS.labels("disabled").set(counts.disabled)
    WEBHOOKS.labels("failing").set(counts.failing)
    WEBHOOK_DELIVERIES_PENDING.set(counts.pending)
    WEBHOOK_OLDEST_DUE_SECONDS.set(counts.oldest_due_seconds)
    WEBHOOK_LAG_VERSIONS.set(counts.lag_versions)


async def sweep_expired_webhooks(context: Context) -> None:
    """Disable operators' webhooks whose key has expired; nothing is sent to them from that instant on, whenever this runs."""
    for _ in range(BATCHES_MAX):
        disabled = await disable_expired_webhooks(context, EXPIRED_MAX)
        WEBHOOKS_DISABLED.labels("key_expired").inc(disabled)
        if disabled < EXPIRED_MAX:
            return
