"""Forget what webhooks delivered long ago."""

from __future__ import annotations

from orchestrator.execution import Context, transact
from orchestrator.store import webhook_deliveries
from orchestrator.store.database import Transaction


async def sweep_deliveries(context: Context, *, seconds: float, kept: int, limit: int) -> int:
    """How many of those that ended are forgotten: older than `seconds`, or beyond the newest `kept` of their webhook."""

    async def effect(tx: Transaction) -> int:
        return await webhook_deliveries.sweep_deliveries(tx, seconds=seconds, kept=kept, limit=limit)

    return await transact(context, effect)
