"""Tenants and what they may hold. A deleted tenant stays as a tombstone: its id and name are never reused."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import orjson
from sqlalchemy import case, func, select, text

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.problems import AlreadyExists, NotFound, TenantDeleted
from orchestrator.tenants.refusals import TenantInUse
from orchestrator.tenants.tables import tenant_quotas, tenants


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant: a customer that rents."""

    id: UUID
    name: str
    state: str
    gpus_limit: int | None
    gpus_used: int
    created_at: datetime
    deleted_at: datetime | None
    row_version: int
    limits: dict[str, int]


@dataclass(frozen=True, slots=True)
class NewGpusLimit:
    """A limit of GPUs to set; None: no limit."""

    limit: int | None


@dataclass(frozen=True, slots=True)
class Deletion:
    """What a deletion revoked and removed; `deleted_at` in RFC 3339."""

    name: str
    deleted_at: str
    api_keys: int
    ssh_keys: int
    webhooks: int
    subscriptions: int
    policies: int


# A deleted tenant has no quota: it may hold nothing.
_TENANTS = (
    select(
        tenants.c.id,
        tenants.c.name,
        tenants.c.state,
        case((tenants.c.state == "deleted", 0), else_=tenant_quotas.c.gpus_limit).label("gpus_limit"),
        func.coalesce(tenant_quotas.c.gpus_used, 0).label("gpus_used"),
        tenants.c.created_at,
        tenants.c.deleted_at,
        (tenants.c.row_version + func.coalesce(tenant_quotas.c.row_version, 1) - 1).label("row_version"),
        func.coalesce(tenant_quotas.c.limits, text("'{}'::jsonb")).label("limits"),
    )
    .join_from(tenants, tenant_quotas, isouter=True)
    .order_by(tenants.c.id)
)


async def insert_tenant(tx: Transaction, name: str, gpus_limit: int | None) -> Tenant:
    """A new tenant with its quota. Raises `AlreadyExists` if the name is taken, also by a rival just committed or deleted."""
    made = (
        await tx.execute(
            "insert into tenants (name) values (:name) on conflict do nothing returning id", {"name": name}
        )
    ).first()
    if made is None:
        there = (await tx.execute("select id, state from tenants where name = :name", {"name": name})).one()
        detail = f"there is already a tenant called {name!r}"
        if there.state == "deleted":
            detail = f"{name!r} was the name of a deleted tenant, and names are not used again; choose another"
        raise AlreadyExists(detail, existing_id=there.id, state=there.state)
    await tx.execute(
        "insert into tenant_quotas (tenant_id, gpus_limit) values (:id, :gpus_limit)",
        {"id": made.id, "gpus_limit": gpus_limit},
    )
    return await read_tenant(tx, made.id)


async def read_tenant(reading: Reading, tenant_id: UUID) -> Tenant:
    """One tenant, or `NotFound`."""
    row = (await reading.execute(_TENANTS.where(tenants.c.id == tenant_id))).first()
    if row is None:
        raise NotFound(f"there is no tenant {tenant_id}")
    return Tenant(**row._mapping)


async def read_limit(reading: Reading, tenant_id: UUID, quota: str) -> int | None:
    """The limit of this quota that an operator has set for the tenant; None: the default applies."""
    values = {"id": tenant_id, "quota": quota}
    found: int | None = (await reading.execute(_LIMIT, values)).scalar_one_or_none()
    return found


async def read_quotas_used(reading: Reading, tenant_id: UUID) -> dict[str, int]:
    """What a tenant uses of each quota, by its name."""
    used: dict[str, int] = (await reading.execute("select quotas_used(:id)", {"id": tenant_id})).scalar_one()
    return used


async def list_tenants(reading: Reading, after: UUID, limit: int) -> list[Tenant]:
    """Up to `limit` tenants in the order in which they were made."""
    page = _TENANTS.where(tenants.c.id > after).limit(limit)
    return [Tenant(**row._mapping) for row in await reading.execute(page)]


async def set_tenant_state(tx: Transaction, tenant_id: UUID, state: str) -> Tenant:
    """The tenant in this state; a repetition changes nothing. Raises `NotFound`, `TenantDeleted`."""
    await tx.execute(_SET_STATE, {"id": tenant_id, "state": state})
    return await _read_undeleted(tx, tenant_id)


async def set_limits(
    tx: Transaction, tenant_id: UUID, gpus: NewGpusLimit | None, limits: Mapping[str, int | None]
) -> Tenant:
    """The tenant with these limits, which may be below what it holds: then it can only release.

    Raises `NotFound`, `TenantDeleted`.
    """
    values = {
        "id": tenant_id, "named": gpus is not None, "gpus_limit": None if gpus is None else gpus.limit,
        "limits": orjson.dumps(dict(limits)).decode(),
    }  # fmt: skip
    await tx.execute(_SET_LIMITS, values)
    return await _read_undeleted(tx, tenant_id)


async def _read_undeleted(tx: Transaction, tenant_id: UUID) -> Tenant:
    tenant = await read_tenant(tx, tenant_id)
    if tenant.deleted_at is not None:
        raise TenantDeleted.at(tenant_id)
    return tenant


async def delete_empty_tenant(tx: Transaction, tenant_id: UUID) -> Deletion | None:
    """Delete a tenant that holds nothing, with its credentials, webhooks and what keeps the log; None if it was deleted before.

    Nothing is created or held for it by a transaction that commits later. Raises `NotFound`, and `TenantInUse` with the counts.
    """
    answer = (await tx.execute(_DELETE, {"id": tenant_id})).scalar_one()
    match answer.pop("outcome"):
        case "deleted":
            return Deletion(**answer)
        case "noop":
            return None
        case "in_use":
            raise TenantInUse.by(tenant_id, answer["users"])
        case "not_found":
            raise NotFound(f"there is no tenant {tenant_id}")
        case word:
            raise ValueError(f"{word} is not an outcome of a deletion")


_LIMIT = "select (limits ->> :quota)::bigint from tenant_quotas where tenant_id = :id"
_SET_LIMITS = """
update tenant_quotas set gpus_limit = case when :named then cast(:gpus_limit as integer) else gpus_limit end,
       limits = jsonb_strip_nulls(limits || cast(:limits as jsonb)), row_version = row_version + 1
where tenant_id = :id
"""
_SET_STATE = """
update tenants set state = :state, row_version = row_version + 1 where id = :id and state not in (:state, 'deleted')
"""
_DELETE = "select delete_tenant(:id)"
_LOCKED = """
with free as materialized (
    select tenant_id from tenant_quotas where tenant_id = any (:ids) for no key update skip locked
)
select tenant_id from tenant_quotas where tenant_id = any (:ids) and tenant_id not in (select tenant_id from free)
"""


async def find_locked_quotas(tx: Transaction, tenant_ids: Collection[UUID]) -> set[UUID]:
    """The tenants whose quota is locked at this moment. Call it in a separate transaction: it locks the other quotas."""
    return set((await tx.execute(_LOCKED, {"ids": list(tenant_ids)})).scalars())
