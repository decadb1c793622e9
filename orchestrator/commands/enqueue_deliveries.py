"""Move the positions of webhooks on, and write down what they are to deliver."""

from __future__ import annotations

from orchestrator.execution import Context, transact
from orchestrator.store.database import Transaction
from orchestrator.store.webhook_dispatch import Advance, advance


async def enqueue_deliveries(context: Context, *, batch: int, pending_max: int, webhooks_max: int) -> Advance:
    """Position and deliveries go together, so nothing is passed over and nothing written twice, however many are at it."""

    async def effect(tx: Transaction) -> Advance:
        return await advance(tx, batch=batch, pending_max=pending_max, webhooks_max=webhooks_max)

    return await transact(context, effect)
