"""Lists of the audit."""

from __future__ import annotations

from orchestrator.audit import store as audit
from orchestrator.audit.store import Entry, Filter
from orchestrator.database.transactions import Database


async def list_audit(database: Database, matching: Filter, *, after: int, limit: int) -> list[Entry]:
    """Up to `limit` entries after this sequence, oldest first."""
    async with database.reading() as reading:
        return await audit.list_entries(reading, matching, after=after, limit=limit)
