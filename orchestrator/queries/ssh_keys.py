"""A tenant's SSH keys."""

from __future__ import annotations

from uuid import UUID

from orchestrator.store import ssh_keys
from orchestrator.store.database import Database
from orchestrator.store.ssh_keys import SshKey


async def find_ssh_key(database: Database, tenant_id: UUID, key_id: UUID) -> SshKey:
    """One key of the tenant's. Raises `NotFound`."""
    async with database.reading() as reading:
        return await ssh_keys.read_ssh_key(reading, tenant_id, key_id)


async def list_ssh_keys(database: Database, tenant_id: UUID, *, after: UUID, limit: int) -> list[SshKey]:
    """Up to `limit` of the tenant's keys after this id."""
    async with database.reading() as reading:
        return await ssh_keys.list_ssh_keys(reading, tenant_id, after, limit)
