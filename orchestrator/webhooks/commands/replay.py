"""Send one message of a webhook again."""

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
    """202 with the delivery: the same message, with the same id. Raises `NotFound`, `InvalidState` while the webhook is
    disabled or an attempt is under way, `LogTruncated`, `WebhookBusy`.
    """

    async def effect(tx: Transaction) -> Done:
        await webhook_deliveries.hold_beginning(tx)
        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)
        again = await webhook_deliveries.replay_one(tx, webhook_id, number, pending_max=pending_max)
        return Done(202, asdict(again), webhook_id)

    return await run_once(context, operation, effect, caller.tenant_id)


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


async def send_test_message(
    context: Context, operation: Operation, caller: Principal, webhook_id: UUID, *, pending_max: int
) -> Answer:
    """202 with the delivery, which gets one attempt, also while the webhook is disabled. Raises `NotFound`, `WebhookBusy`."""

    async def effect(tx: Transaction) -> Done:
        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)
        added = await webhook_deliveries.add_test(tx, webhook_id, pending_max=pending_max)
        return Done(202, asdict(added), webhook_id)

    return await run_once(context, operation, effect, caller.tenant_id)
