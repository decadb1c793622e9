"""Tenants and API keys, for operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.database.calls import CallGroup
from orchestrator.database.transactions import Database
from orchestrator.problems import Quota
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.store import api_keys, members, ssh_keys, tenants
from orchestrator.tenants.store import api_keys as principals
from orchestrator.tenants.store.api_keys import ApiKey
from orchestrator.tenants.store.members import Invitation, Member, Membership
from orchestrator.tenants.store.ssh_keys import SshKey
from orchestrator.tenants.store.tenants import Tenant


async def find_tenant(database: Database, tenant_id: UUID) -> Tenant:
    """One tenant. Raises `NotFound`."""
    async with database.reading() as reading:
        return await tenants.read_tenant(reading, tenant_id)


async def find_quotas_used(database: Database, tenant_id: UUID) -> dict[str, int]:
    """What a tenant uses of each quota."""
    async with database.reading() as reading:
        return await tenants.read_quotas_used(reading, tenant_id)


async def find_limit(database: Database, tenant_id: UUID, quota: Quota, *, default: int) -> int:
    """A tenant's limit of one quota: what an operator has set, else the default."""
    async with database.reading() as reading:
        found = await tenants.read_limit(reading, tenant_id, quota.value)
    return default if found is None else found


def quotas_of(tenant: Tenant, used: Mapping[str, int], defaults: Mapping[Quota, int]) -> list[JsonObject]:
    """Each quota with the tenant's limit, set by an operator or the default, and its use."""
    return [
        {"quota": quota.value, "limit": tenant.limits.get(quota.value, default), "used": used[quota.value]}
        for quota, default in defaults.items()
    ]


async def list_tenants(database: Database, *, after: UUID, limit: int) -> list[Tenant]:
    """Up to `limit` tenants after this id."""
    async with database.reading() as reading:
        return await tenants.list_tenants(reading, after, limit)


async def list_api_keys(database: Database, *, tenant_id: UUID | None, after: UUID, limit: int) -> list[ApiKey]:
    """Up to `limit` keys after this id, of one tenant or of all."""
    async with database.reading() as reading:
        return await api_keys.list_api_keys(reading, tenant_id, after, limit)


async def is_operators_key(database: Database, key_id: UUID) -> bool:
    """Whether there is such a key, and it is an operator's."""
    async with database.reading() as reading:
        return await api_keys.is_operators_key(reading, key_id)


async def find_ssh_key(database: Database, tenant_id: UUID, key_id: UUID) -> SshKey:
    """One key of the tenant's. Raises `NotFound`."""
    async with database.reading() as reading:
        return await ssh_keys.read_ssh_key(reading, tenant_id, key_id)


async def list_ssh_keys(database: Database, tenant_id: UUID, *, after: UUID, limit: int) -> list[SshKey]:
    """Up to `limit` of the tenant's keys after this id."""
    async with database.reading() as reading:
        return await ssh_keys.list_ssh_keys(reading, tenant_id, after, limit)


async def find_principals(database: Database, digests: Sequence[bytes]) -> dict[bytes, Principal]:
    """The principals of live keys, by the keys' SHA-256. Uses no connection that an authenticated request may need."""
    async with database.read_call(CallGroup.ANYONE) as call:
        return await principals.find_principals(call, digests)


async def note_key_uses(database: Database, ages: Mapping[UUID, float], least_seconds: float) -> int:
    """Store when keys were last used, by the seconds since; return how many rows it wrote."""
    async with database.transaction() as tx:
        return await api_keys.note_uses(tx, ages, least_seconds)


async def note_head(database: Database) -> None:
    """Note the head as the version of a response that is read from nothing else."""
    async with database.read_one():
        pass


async def is_tenant_active(database: Database, tenant_id: UUID) -> bool:
    """Whether a token may act for this tenant."""
    async with database.read_one() as reading:
        return await principals.is_tenant_active(reading, tenant_id)


async def list_invitations(database: Database, tenant_id: UUID, *, after: UUID, limit: int) -> list[Invitation]:
    """Up to `limit` of the tenant's invitations after this id."""
    async with database.reading() as reading:
        return await members.list_invitations(reading, tenant_id, after, limit)


async def list_members(database: Database, tenant_id: UUID, *, after: UUID, limit: int) -> list[Member]:
    """Up to `limit` of the tenant's members after this id."""
    async with database.reading() as reading:
        return await members.list_members(reading, tenant_id, after, limit)


async def find_membership(database: Database, principal_id: UUID) -> Membership | None:
    """The membership of a principal; None: it is a member of no tenant."""
    async with database.read_one() as reading:
        return await members.find_membership(reading, principal_id)
