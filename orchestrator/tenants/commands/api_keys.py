"""Create an API key. Its secret is returned once and never stored in the clear."""

from __future__ import annotations

import hashlib
import secrets
import string
from dataclasses import asdict
from uuid import UUID

from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.sealing import Sealer
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.operations.store.tenancy import keep_tenant
from orchestrator.tenants.principals import Actor
from orchestrator.tenants.store import api_keys, tenants
from orchestrator.tenants.store.api_keys import KeyWanted

PREFIX_LENGTH = 8
SECRET_BYTES = 32
PREFIX_LETTERS = string.ascii_lowercase + string.digits


async def create_api_key(
    context: Context,
    operation: Operation,
    actor: Actor,
    sealer: Sealer,
    wanted: KeyWanted,
    *,
    lifetime_seconds_max: int,
) -> Answer:
    """201 with the key; its member `key` is sealed for the caller, so that a retry gets the same one.

    422 `invalid` if its `expires_at` is past or later than `lifetime_seconds_max` (0: no bound) allows.
    """
    tenant_id = wanted.tenant_id
    prefix = "".join(secrets.choice(PREFIX_LETTERS) for _ in range(PREFIX_LENGTH))
    key = f"berth_{prefix}_{secrets.token_urlsafe(SECRET_BYTES)}"

    async def effect(tx: Transaction) -> Done:
        if tenant_id is not None:
            await tenants.read_tenant(tx, tenant_id)
            await keep_tenant(tx, tenant_id)
        expires_at = await api_keys.read_expiry(tx, wanted.expires_at, lifetime_seconds_max)
        made = await api_keys.insert_api_key(
            tx, wanted, expires_at=expires_at, prefix=prefix, secret_hash=hashlib.sha256(key.encode()).digest()
        )
        asked = {"name": wanted.name, "role": wanted.role, "tenant_id": tenant_id, "prefix": prefix}
        detail = {**asked, "expires_at": made.expires_at, "owner": made.owner}
        await audit.record(tx, actor, "api_key.create", f"api-keys/{made.id}", detail, operation.request_id)
        members = asdict(made)
        del members["revoked_at"]
        return Done(201, {**members, "key": sealer.seal(key)}, made.id)

    return await run_once(context, operation, effect, None)


async def revoke_api_key(context: Context, operation: Operation, actor: Actor, key_id: UUID) -> Answer:
    """204; the key is refused at once here, and within `credential_cache_seconds` by every other process."""

    async def effect(tx: Transaction) -> Done:
        stopped = await api_keys.revoke_api_key(tx, key_id)
        detail = {"webhooks_disabled": stopped} if stopped else {}
        await audit.record(tx, actor, "api_key.revoke", f"api-keys/{key_id}", detail, operation.request_id)
        return Done(204, None, key_id)

    return await run_once(context, operation, effect, None)
