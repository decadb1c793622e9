"""Change where a webhook sends what, or whether it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from uuid import UUID

from orchestrator.domain.states import Principal
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, webhooks
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation


async def change_webhook(
    context: Context,
    operation: Operation,
    caller: Principal,
    webhook_id: UUID,
    *,
    url: str | None,
    description: str | None,
    types: Sequence[str] | None,
    state: str | None,
) -> Answer:
    """200 with the webhook; what is None stays. Once enabled, it begins with what comes next. Raises `NotFound`."""

    async def effect(tx: Transaction) -> Done:
        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)
        changed = await webhooks.change_webhook(
            tx, webhook_id, url=url, description=description, types=types, state=state
        )
        if caller.tenant_id is None:
            detail = {"state": changed.state, "types": list(changed.types), "url_changed": url is not None}
            await audit.record(
                tx, caller.actor, "webhook.change", f"webhooks/{webhook_id}", detail, operation.request_id
            )
        return Done(200, asdict(changed), webhook_id)

    return await run_once(context, operation, effect, caller.tenant_id)
