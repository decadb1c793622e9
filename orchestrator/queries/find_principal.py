"""Who is behind a key."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.states import Principal
from orchestrator.store import principals
from orchestrator.store.database import Database


async def find_principal(database: Database, digest: bytes) -> Principal | None:
    """The principal of a live key, by the key's SHA-256."""
    async with database.glance() as reading:
        return await principals.find_principal(reading, digest)


async def is_tenant_active(database: Database, tenant_id: UUID) -> bool:
    """Whether a token may act for this tenant."""
    async with database.glance() as reading:
        return await principals.is_tenant_active(reading, tenant_id)
