"""Send one message of a webhook again."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

from orchestrator.domain.states import Principal
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import webhook_deliveries, webhooks
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation


async def replay_delivery(
    context: Context, operation: Operation, caller: Principal, webhook_id: UUID, number: int, *, pending_max: int
) -> Answer:
    """202 with the delivery: the same message, with the same id. Raises `NotFound`, `InvalidState` while the webhook is
    disabled or an attempt is under way, `LogTruncated`, `WebhookBusy`.
    """

    async def effect(tx: Transaction) -> Done:
        await webhook_deliveries.hold_beginning(tx)
        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)
        again = await webhook_deliveries.replay_one(tx, webhook_id, number, pending_max=pending_max)
        return Done(202, asdict(again), webhook_id)

    return await run_once(context, operation, effect, caller.tenant_id)
