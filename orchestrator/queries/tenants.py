"""Tenants and API keys, for operators."""

from __future__ import annotations

from uuid import UUID

from orchestrator.store import api_keys, tenants
from orchestrator.store.api_keys import ApiKey
from orchestrator.store.database import Database
from orchestrator.store.tenants import Tenant


async def find_tenant(database: Database, tenant_id: UUID) -> Tenant:
    """One tenant. Raises `NotFound`."""
    async with database.reading() as reading:
        return await tenants.read_tenant(reading, tenant_id)


async def list_tenants(database: Database, *, after: UUID, limit: int) -> list[Tenant]:
    """Up to `limit` tenants after this id."""
    async with database.reading() as reading:
        return await tenants.list_tenants(reading, after, limit)


async def list_api_keys(database: Database, *, tenant_id: UUID | None, after: UUID, limit: int) -> list[ApiKey]:
    """Up to `limit` keys after this id, of one tenant or of all."""
    async with database.reading() as reading:
        return await api_keys.list_api_keys(reading, tenant_id, after, limit)
