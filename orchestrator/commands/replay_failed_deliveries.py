"""Send again what a webhook could not deliver."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from uuid import UUID

from orchestrator.domain.states import Principal
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import webhook_deliveries, webhooks
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation


async def replay_failed_deliveries(
    context: Context, operation: Operation, caller: Principal, webhook_id: UUID, since: datetime, *, pending_max: int
) -> Answer:
    """202 with how many of those that failed since then are sent again, and how many are left: call it again for those.
    Raises `NotFound`, `InvalidState` while the webhook is disabled, `WebhookBusy`.
    """

    async def effect(tx: Transaction) -> Done:
        await webhook_deliveries.hold_beginning(tx)
        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)
        replayed = await webhook_deliveries.replay_failed(tx, webhook_id, since, pending_max=pending_max)
        return Done(202, asdict(replayed), webhook_id)

    return await run_once(context, operation, effect, caller.tenant_id)
