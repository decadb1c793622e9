"""What webhooks delivered long ago is forgotten, and how they are doing is measured."""

from __future__ import annotations

import time

from orchestrator.operations.execution import Context
from orchestrator.webhooks.commands.dispatch import sweep_deliveries
from orchestrator.webhooks.queries import find_standing
from worker.metrics import (
    SWEPT,
    WEBHOOK_DELIVERIES_PENDING,
    WEBHOOK_LAG_VERSIONS,
    WEBHOOK_OLDEST_DUE_SECONDS,
    WEBHOOKS,
)

BATCH_MAX = 1_000
BATCHES_MAX = 10
PAUSE_SECONDS = 15.0


class WebhookSweeper:
    """Keeps deliveries that have ended for `seconds`, and of each webhook the newest `kept`."""

    def __init__(self, context: Context, *, seconds: float, kept: int) -> None:
        self._context = context
        self._seconds = seconds
        self._kept = kept
        self._due = float("-inf")

    async def sweep(self) -> None:
        """Every 15 s: forget up to ten thousand, in small transactions, and renew the gauges."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + PAUSE_SECONDS
        for _ in range(BATCHES_MAX):
            gone = await sweep_deliveries(self._context, seconds=self._seconds, kept=self._kept, limit=BATCH_MAX)
            SWEPT.labels("webhook_delivery").inc(gone)
            if gone < BATCH_MAX:
                break
        standing = await find_standing(self._context.database)
        for state in ("enabled", "disabled", "failing"):
            WEBHOOKS.labels(state).set(getattr(standing, state))
        WEBHOOK_DELIVERIES_PENDING.set(standing.pending)
        WEBHOOK_OLDEST_DUE_SECONDS.set(standing.oldest_due_seconds)
        WEBHOOK_LAG_VERSIONS.set(standing.lag_versions)
