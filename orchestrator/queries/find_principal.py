"""Who is behind a key."""

from __future__ import annotations

from orchestrator.domain.states import Principal
from orchestrator.store import principals
from orchestrator.store.database import Database


async def find_principal(database: Database, digest: bytes) -> Principal | None:
    """The principal of a live key, by the key's SHA-256."""
    async with database.glance() as reading:
        return await principals.find_principal(reading, digest)
