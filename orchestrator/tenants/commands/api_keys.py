"""Create, rotate and revoke API keys. A secret is returned once and never stored in the clear.

A caller that is a member acts only while it is an admin: each effect locks its membership (`require_admin`).
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.sealing import Sealer
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.operations.store.tenancy import keep_tenant
from orchestrator.problems import Invalid
from orchestrator.tenants.key_secrets import Secret
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.scopes import require_scopes
from orchestrator.tenants.store import api_keys, key_changes, tenants
from orchestrator.tenants.store.api_keys import ApiKey, KeyBounds, KeyWanted
from orchestrator.tenants.store.key_changes import Rotation, rotate_key
from orchestrator.tenants.store.members import require_admin

OVERLAP_OF_ITSELF_SECONDS_MIN = 60
"""A key that rotates itself is valid for this long at least, so that a lost response can be asked for again."""
_NOT_OF_NEW_KEYS = ("revoked_at", "last_used_at", "replaced_by")


async def create_api_key(
    context: Context, operation: Operation, caller: Principal, sealer: Sealer, wanted: KeyWanted, bounds: KeyBounds
) -> Answer:
    """201 with the key; its member `key` is sealed for the caller, so that a retry gets the same one.

    422 `invalid` if its `expires_at` is past or later than the bound allows; 409 `quota_exceeded` of a tenant. Raises
    `ScopesExceeded` if the key may do more than the caller's.
    """
    tenant_id, secret = wanted.tenant_id, Secret()
    require_scopes(caller.scopes, wanted.scopes)

    async def effect(tx: Transaction) -> Done:
        if tenant_id is not None:
            await tenants.read_tenant(tx, tenant_id)
            await keep_tenant(tx, tenant_id)
            await require_admin(tx, caller)
        expires_at = await api_keys.read_expiry(tx, wanted.expires_at, bounds.lifetime_seconds_max)
        if tenant_id is not None:
            await key_changes.require_room(tx, tenant_id, bounds.keys_max)
        made = await api_keys.insert_api_key(tx, wanted, secret.stored, expires_at)
        asked = {"name": wanted.name, "role": wanted.role, "tenant_id": tenant_id, "prefix": secret.prefix}
        detail = {
            **asked,
            "expires_at": made.expires_at,
            "owner": made.owner,
            "break_glass": made.break_glass,
            "scopes": made.scopes,
        }
        await audit.record(tx, caller.actor, "api_key.create", f"api-keys/{made.id}", detail, operation.request_id)
        return Done(201, _shown_once(made, secret, sealer), made.id)

    return await run_once(context, operation, effect, caller.tenant_id)


async def rotate_api_key(
    context: Context,
    operation: Operation,
    caller: Principal,
    sealer: Sealer,
    key_id: UUID,
    bounds: KeyBounds,
    *,
    overlap_seconds: int,
    expires_at: datetime | None,
) -> Answer:
    """201 with a new key of the same name, role, owner and scopes, `key` as in `create_api_key`.

    The old one ends after the overlap. Without `expires_at` the new key has the length of life of the old one, within the bound.
    Raises `NotFound`, also for a key outside the caller's tenant, `InvalidState` if the key is not live, `QuotaExceeded`,
    `ScopesExceeded`, and `Invalid` for an unusable `expires_at` or a key that rotates itself with an overlap below
    `OVERLAP_OF_ITSELF_SECONDS_MIN`.
    """
    scope, secret = caller.tenant_id, Secret()
    if key_id == caller.id and overlap_seconds < OVERLAP_OF_ITSELF_SECONDS_MIN:
        raise Invalid(
            f"a key that rotates itself needs an overlap of at least {OVERLAP_OF_ITSELF_SECONDS_MIN} seconds; name a longer one"
        )

    async def effect(tx: Transaction) -> Done:
        await keep_tenant(tx, scope)
        await require_admin(tx, caller)
        wanted = Rotation(overlap_seconds, expires_at, secret.stored)
        made, replaced = await rotate_key(tx, scope, key_id, wanted, bounds, caller.scopes)
        detail = {
            "replaced_by": made.id,
            "prefix": secret.prefix,
            "expires_at": made.expires_at,
            "overlap_ends_at": replaced,
        }
        await audit.record(tx, caller.actor, "api_key.rotate", f"api-keys/{key_id}", detail, operation.request_id)
        body = {**_shown_once(made, secret, sealer), "replaces": key_id, "replaced_expires_at": replaced}
        return Done(201, body, key_id)

    return await run_once(context, operation, effect, scope)


async def revoke_api_key(context: Context, operation: Operation, caller: Principal, key_id: UUID) -> Answer:
    """204; the key is refused at once here, and within `credential_cache_seconds` by every other process.

    Raises `NotFound`, also for a key outside the caller's tenant; a tenant also gets 409 `last_admin_key`.
    """

    async def effect(tx: Transaction) -> Done:
        if caller.tenant_id is None:
            stopped = await api_keys.revoke_api_key(tx, key_id)
        else:
            await require_admin(tx, caller)
            await key_changes.revoke_own_key(tx, caller.tenant_id, key_id)
            stopped = 0
        detail = {"webhooks_disabled": stopped} if stopped else {}
        await audit.record(tx, caller.actor, "api_key.revoke", f"api-keys/{key_id}", detail, operation.request_id)
        return Done(204, None, key_id)

    return await run_once(context, operation, effect, caller.tenant_id)


def _shown_once(made: ApiKey, secret: Secret, sealer: Sealer) -> JsonObject:
    """The members of the response that shows the secret, sealed for the caller."""
    members = {name: value for name, value in asdict(made).items() if name not in _NOT_OF_NEW_KEYS}
    return {**members, "key": sealer.seal(secret.key)}
