"""Have a webhook deliver a message that stands for no event."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

from orchestrator.domain.states import Principal
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import webhook_deliveries, webhooks
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation


async def send_test_message(
    context: Context, operation: Operation, caller: Principal, webhook_id: UUID, *, pending_max: int
) -> Answer:
    """202 with the delivery, which gets one attempt, also while the webhook is disabled. Raises `NotFound`, `WebhookBusy`."""

    async def effect(tx: Transaction) -> Done:
        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)
        added = await webhook_deliveries.add_test(tx, webhook_id, pending_max=pending_max)
        return Done(202, asdict(added), webhook_id)

    return await run_once(context, operation, effect, caller.tenant_id)
