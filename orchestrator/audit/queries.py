"""What operators did."""

from __future__ import annotations

from orchestrator.audit import store as audit
from orchestrator.audit.store import Entry
from orchestrator.database.transactions import Database


async def list_audit(database: Database, *, subject: str | None, after: int, limit: int) -> list[Entry]:
    """Up to `limit` entries after this one, oldest first."""
    async with database.reading() as reading:
        return await audit.list_entries(reading, subject=subject, after=after, limit=limit)
