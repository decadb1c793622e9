"""Sign a webhook's messages by a new key; the older ones sign too for a while."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

from orchestrator.domain.states import Principal
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, webhooks
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation
from orchestrator.trust.sealing import Sealer
from orchestrator.trust.webhook_keys import WebhookKeys
from orchestrator.trust.webhook_signatures import Signing, new_signing_key


async def rotate_webhook(
    context: Context,
    operation: Operation,
    caller: Principal,
    sealer: Sealer,
    keys: WebhookKeys,
    webhook_id: UUID,
    *,
    overlap_seconds: float,
) -> Answer:
    """200 with the webhook; a shared secret is its member `secret`, sealed for the caller. Raises `NotFound`,
    `WebhookKeysFull`.
    """

    async def effect(tx: Transaction) -> Done:
        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)
        signing = Signing((await webhooks.read_webhook(tx, caller.tenant_id, webhook_id)).signing)
        key = new_signing_key(signing)
        changed = await webhooks.rotate_keys(
            tx, webhook_id, sealed=keys.seal(webhook_id, key.secret), public_key=key.public_key,
            overlap_seconds=overlap_seconds,
        )  # fmt: skip
        if caller.tenant_id is None:
            detail = {"overlap_seconds": overlap_seconds}
            await audit.record(
                tx, caller.actor, "webhook.rotate", f"webhooks/{webhook_id}", detail, operation.request_id
            )
        told = {} if key.public_key is not None else {"secret": sealer.seal(key.secret)}
        return Done(200, {**asdict(changed), **told}, webhook_id)

    return await run_once(context, operation, effect, caller.tenant_id)
