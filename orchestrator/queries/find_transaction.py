"""Where a transaction stands in the log, by its key or its event (docs/kv.md)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.states import Principal
from orchestrator.store import keys
from orchestrator.store.database import Database
from orchestrator.store.keys import Committed


async def find_transaction(database: Database, principal: Principal, key: str) -> Committed | None:
    """The one that this principal, or its tenant, committed under the key, as long as the log keeps it."""
    own = principal.id if principal.tenant_id is None else None
    async with database.glance() as reading:
        return await keys.read_transaction(reading, key, principal.tenant_id, own)


async def find_event(database: Database, event_id: UUID) -> Committed | None:
    """The place of an event, as long as the log keeps it."""
    async with database.glance() as reading:
        return await keys.read_event(reading, event_id)


async def find_first_version(database: Database) -> int:
    """The lowest version that the log keeps."""
    async with database.glance() as reading:
        return await keys.read_first_version(reading)
