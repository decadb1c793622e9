"""Create, change, delete a webhook, and rotate its signing key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from uuid import UUID

from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.sealing import Sealer
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.operations.store.tenancy import keep_tenant
from orchestrator.problems import Forbidden
from orchestrator.tenants.principals import Principal
from orchestrator.webhooks.addresses import read_webhook_url
from orchestrator.webhooks.keys import WebhookKeys
from orchestrator.webhooks.signatures import Signing, new_signing_key
from orchestrator.webhooks.store import webhooks


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
    """Create a webhook; 201 with it. An HMAC secret is its member `secret`, sealed for the caller, so a retry returns the same.

    Raises `QuotaExceeded`; `Forbidden` to an operator without an API key.
    """
    _require_key(caller)
    key = new_signing_key(signing)

    async def effect(tx: Transaction) -> Done:
        await keep_tenant(tx, caller.tenant_id)
        webhook_id = await webhooks.draw_webhook_id(tx, caller.tenant_id, webhooks_max)
        made = await webhooks.insert_webhook(
            tx, webhook_id, caller.tenant_id, url=url, description=description, types=types, signing=signing.value,
            sealed=keys.seal(webhook_id, key.secret), public_key=key.public_key, versions_max=versions_max, created_by=caller.id,
        )  # fmt: skip
        if caller.tenant_id is None:
            detail = {"host": read_webhook_url(url).authority, "types": list(types)}
            await audit.record(
                tx, caller.actor, "webhook.create", f"webhooks/{webhook_id}", detail, operation.request_id
            )
        secret = {} if key.public_key is not None else {"secret": sealer.seal(key.secret)}
        return Done(201, {**asdict(made), **secret}, webhook_id)

    return await run_once(context, operation, effect, caller.tenant_id)


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
    """Change a webhook (None: unchanged); 200 with it. Once enabled again, it receives events from then on.

    Raises `NotFound`; `Forbidden` to an operator without an API key that enables it.
    """
    if state == "enabled":
        _require_key(caller)

    async def effect(tx: Transaction) -> Done:
        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)
        changed = await webhooks.change_webhook(
            tx, webhook_id, url=url, description=description, types=types, state=state, caller=caller.id
        )
        if caller.tenant_id is None:
            detail = {"state": changed.state, "types": list(changed.types), "url_changed": url is not None}
            await audit.record(
                tx, caller.actor, "webhook.change", f"webhooks/{webhook_id}", detail, operation.request_id
            )
        return Done(200, asdict(changed), webhook_id)

    return await run_once(context, operation, effect, caller.tenant_id)


async def delete_webhook(context: Context, operation: Operation, caller: Principal, webhook_id: UUID) -> Answer:
    """Delete a webhook; 204. An attempt in flight ends by itself. Raises `NotFound`."""

    async def effect(tx: Transaction) -> Done:
        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)
        await webhooks.delete_webhook(tx, webhook_id)
        if caller.tenant_id is None:
            await audit.record(tx, caller.actor, "webhook.delete", f"webhooks/{webhook_id}", {}, operation.request_id)
        return Done(204, None, webhook_id)

    return await run_once(context, operation, effect, caller.tenant_id)


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
    """Add a new signing key; 200 with the webhook, `secret` as in `create_webhook`. Raises `NotFound`, `WebhookKeysFull`."""

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
        secret = {} if key.public_key is not None else {"secret": sealer.seal(key.secret)}
        return Done(200, {**asdict(changed), **secret}, webhook_id)

    return await run_once(context, operation, effect, caller.tenant_id)


def _require_key(caller: Principal) -> None:
    """An operators' webhook receives every event and ends with its key. A token is no key: nothing would end its webhook."""
    if caller.tenant_id is None and caller.subject is not None:
        raise Forbidden("a webhook of the operators ends with the API key that made it; use an API key, not a token")
