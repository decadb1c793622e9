"""Lists of the audit."""

from __future__ import annotations

from orchestrator.audit import list_store
from orchestrator.audit.list_store import Examined, Filter
from orchestrator.database.transactions import Database


async def list_audit(database: Database, matching: Filter, *, after: int, limit: int) -> Examined:
    """Up to `limit` entries after this sequence, oldest first, among the next `EXAMINED_MAX` of the index."""
    async with database.reading() as reading:
        return await list_store.list_entries(reading, matching, after=after, limit=limit)
