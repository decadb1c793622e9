"""API keys, one function per path: of all tenants and operators for operators, `own` ones for a tenant's admins."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

from berth.client.calls.call import Call, read_page, remove, write, written
from berth.client.models import ApiKey, NewApiKey, Page

ALL = "/api/v1/admin/api-keys"
OWN = "/api/v1/api-keys"
Role = Literal["viewer", "member", "admin", "billing", "support", "fleet", "finance", "tenant"]
"""Role of an API key; `tenant` is the earlier name of a tenant's `admin`."""


class RotatedApiKey(NewApiKey):
    """The key that a rotation made, as shown once. The old one, `replaces`, is refused from `replaced_expires_at` on."""

    replaces: UUID
    replaced_expires_at: datetime


def create_api_key(
    *,
    name: str,
    role: Role,
    tenant_id: UUID | None = None,
    expires_at: datetime | None = None,
    owner: str | None = None,
    break_glass: bool | None = None,
    scopes: Sequence[str] | None = None,
    idempotency_key: str | None = None,
) -> Call[NewApiKey]:
    """Make an API key: of a tenant with `tenant_id`, of operators without. Its secret is in this answer and nowhere else.

    Each use of an operator's key with `break_glass` is an event `key.break_glass_used`, one per minute.

    It is refused from `expires_at` on (aware; None: as late as the deployment allows). Raises `Invalid` for a time beyond,
    `QuotaExceeded`. `scopes`: what it may do within its role, such as `allocations:read`; None: everything. Raises
    `ScopesExceeded` if the caller's key has scopes and does not have these.
    """
    body = {
        "name": name, "role": role, "tenant_id": None if tenant_id is None else str(tenant_id),
        "expires_at": written(expires_at), "owner": owner, "break_glass": break_glass,
        "scopes": None if scopes is None else list(scopes),
    }  # fmt: skip
    return write("POST", ALL, NewApiKey, body, idempotency_key)


def list_api_keys(
    *, tenant_id: UUID | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[ApiKey]]:
    """API keys, without secrets."""
    tenant = None if tenant_id is None else str(tenant_id)
    return read_page(ALL, ApiKey, tenant_id=tenant, limit=limit, cursor=cursor)


def rotate_api_key(
    key_id: UUID,
    *,
    overlap_seconds: int | None = None,
    expires_at: datetime | None = None,
    idempotency_key: str | None = None,
) -> Call[RotatedApiKey]:
    """Make a key of the same name, role, owner and scopes; the old one stays valid for `overlap_seconds` (default: a day).

    `expires_at` is the new key's; None: it has the length of life of the old one. Raises `NotFound`, `InvalidState` if the
    key is not live, `QuotaExceeded`, `Invalid`.
    """
    return _rotate(ALL, key_id, overlap_seconds, expires_at, idempotency_key)


def revoke_api_key(key_id: UUID, *, idempotency_key: str | None = None) -> Call[None]:
    """Refuse a key from now on."""
    return remove(f"{ALL}/{key_id}", idempotency_key)


def create_own_api_key(
    *,
    name: str,
    role: Role,
    expires_at: datetime | None = None,
    owner: str | None = None,
    scopes: Sequence[str] | None = None,
    idempotency_key: str | None = None,
) -> Call[NewApiKey]:
    """Make an API key of the caller's tenant, as `create_api_key`; its role is one of a tenant."""
    body = {
        "name": name, "role": role, "expires_at": written(expires_at), "owner": owner,
        "scopes": None if scopes is None else list(scopes),
    }  # fmt: skip
    return write("POST", OWN, NewApiKey, body, idempotency_key)


def list_own_api_keys(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[ApiKey]]:
    """API keys of the caller's tenant, without secrets, revoked ones too."""
    return read_page(OWN, ApiKey, limit=limit, cursor=cursor)


def rotate_own_api_key(
    key_id: UUID,
    *,
    overlap_seconds: int | None = None,
    expires_at: datetime | None = None,
    idempotency_key: str | None = None,
) -> Call[RotatedApiKey]:
    """As `rotate_api_key`, for a key of the caller's tenant."""
    return _rotate(OWN, key_id, overlap_seconds, expires_at, idempotency_key)


def revoke_own_api_key(key_id: UUID, *, idempotency_key: str | None = None) -> Call[None]:
    """Refuse a key of the caller's tenant from now on. Raises `NotFound`, `LastAdminKey`."""
    return remove(f"{OWN}/{key_id}", idempotency_key)


def _rotate(
    path: str, key_id: UUID, overlap_seconds: int | None, expires_at: datetime | None, key: str | None
) -> Call[RotatedApiKey]:
    body = {"overlap_seconds": overlap_seconds, "expires_at": written(expires_at)}
    return write("POST", f"{path}/{key_id}/rotate", RotatedApiKey, body, key)
