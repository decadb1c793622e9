"""Send a URL nothing more, and forget what signed it."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.states import Principal
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, webhooks
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation


async def delete_webhook(context: Context, operation: Operation, caller: Principal, webhook_id: UUID) -> Answer:
    """204; an attempt under way ends by itself. Raises `NotFound`."""

    async def effect(tx: Transaction) -> Done:
        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)
        await webhooks.delete_webhook(tx, webhook_id)
        if caller.tenant_id is None:
            await audit.record(tx, caller.actor, "webhook.delete", f"webhooks/{webhook_id}", {}, operation.request_id)
        return Done(204, None, webhook_id)

    return await run_once(context, operation, effect, caller.tenant_id)
