"""Register a URL that events are sent to. What signs them is told once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from orchestrator.domain.states import Principal
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, webhooks
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation
from orchestrator.trust.sealing import Sealer
from orchestrator.trust.webhook_addresses import read_webhook_url
from orchestrator.trust.webhook_keys import WebhookKeys
from orchestrator.trust.webhook_signatures import Signing, new_signing_key


async def create_webhook(
    context: Context,
    operation: Operation,
    caller: Principal,
    sealer: Sealer,
    keys: WebhookKeys,
    *,
    url: str,
    description: str | None,
    types: Sequence[str],
    signing: Signing,
    versions_max: int,
    webhooks_max: int,
) -> Answer:
    """201 with the webhook; a shared secret is its member `secret`, sealed for the caller, so that a retry gets the same one.
    Raises `WebhooksFull`.
    """
    key = new_signing_key(signing)

    async def effect(tx: Transaction) -> Done:
        webhook_id = await webhooks.draw_webhook_id(tx, caller.tenant_id, webhooks_max)
        made = await webhooks.insert_webhook(
            tx, webhook_id, caller.tenant_id, url=url, description=description, types=types, signing=signing.value,
            sealed=keys.seal(webhook_id, key.secret), public_key=key.public_key, versions_max=versions_max,
        )  # fmt: skip
        if caller.tenant_id is None:
            detail = {"host": read_webhook_url(url).authority, "types": list(types)}
            await audit.record(
                tx, caller.actor, "webhook.create", f"webhooks/{webhook_id}", detail, operation.request_id
            )
        told = {} if key.public_key is not None else {"secret": sealer.seal(key.secret)}
        return Done(201, {**asdict(made), **told}, webhook_id)

    return await run_once(context, operation, effect, caller.tenant_id)
