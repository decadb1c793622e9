"""Send deliveries of a webhook again, or a test message."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from uuid import UUID

from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.tenants.principals import Principal
from orchestrator.webhooks.store import deliveries as webhook_deliveries
from orchestrator.webhooks.store import webhooks


async def replay_delivery(
    context: Context, operation: Operation, caller: Principal, webhook_id: UUID, number: int, *, pending_max: int
) -> Answer:
    """Send one delivery again, with the same id and content; 202 with the delivery.

    Raises `NotFound`, `InvalidState` while the webhook is disabled or an attempt is in flight, `LogTruncated`, `WebhookBusy`.
    """

    async def effect(tx: Transaction) -> Done:
        await webhook_deliveries.lock_first_version(tx)
        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)
        again = await webhook_deliveries.replay_one(tx, webhook_id, number, pending_max=pending_max)
        return Done(202, asdict(again), webhook_id)

    return await run_once(context, operation, effect, caller.tenant_id)


async def replay_failed_deliveries(
    context: Context, operation: Operation, caller: Principal, webhook_id: UUID, since: datetime, *, pending_max: int
) -> Answer:
    """Send the deliveries that failed since then again; 202 with how many, and how many are left for another call.

    Raises `NotFound`, `InvalidState` while the webhook is disabled, `WebhookBusy`.
    """

    async def effect(tx: Transaction) -> Done:
        await webhook_deliveries.lock_first_version(tx)
        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)
        replayed = await webhook_deliveries.replay_failed(tx, webhook_id, since, pending_max=pending_max)
        return Done(202, asdict(replayed), webhook_id)

    return await run_once(context, operation, effect, caller.tenant_id)


async def send_test_message(
    context: Context, operation: Operation, caller: Principal, webhook_id: UUID, *, pending_max: int
) -> Answer:
    """Send a test message in one attempt, also while the webhook is disabled; 202 with the delivery.

    Raises `NotFound`, `WebhookBusy`.
    """

    async def effect(tx: Transaction) -> Done:
        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)
        added = await webhook_deliveries.add_test(tx, webhook_id, pending_max=pending_max)
        return Done(202, asdict(added), webhook_id)

    return await run_once(context, operation, effect, caller.tenant_id)
