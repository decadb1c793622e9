"""What operators did."""

from __future__ import annotations

from orchestrator.store import audit
from orchestrator.store.audit import Entry
from orchestrator.store.database import Database


async def list_audit(database: Database, *, subject: str | None, after: int, limit: int) -> list[Entry]:
    """Up to `limit` entries after this one, oldest first."""
    async with database.reading() as reading:
        return await audit.list_entries(reading, subject=subject, after=after, limit=limit)
