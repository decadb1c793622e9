"""Lists of the audit."""

from __future__ import annotations

from orchestrator.audit import list_store, stream_store
from orchestrator.audit.list_store import Entry, Examined, Filter
from orchestrator.audit.stream_store import Backlog
from orchestrator.database.transactions import Database


async def list_audit(database: Database, matching: Filter, *, after: int | None, limit: int) -> Examined:
    """Up to `limit` entries, oldest first, among the next `EXAMINED_MAX` of the index.

    They begin after this sequence, or with the oldest that is kept. Raises `AuditTruncated` if rows after it are not.
    """
    # From the primary: rows of the audit have no version, so a standby may lack what was done before the request.
    async with database.reading() as reading:
        if after is not None:
            await list_store.require_kept(reading, after)
        return await list_store.list_entries(reading, matching, after=after or 0, limit=limit)


async def read_chain(database: Database, after: int, limit: int) -> list[Entry]:
    """Up to `limit` rows of the chain after this sequence, in its order."""
    async with database.reading() as reading:
        return await stream_store.read_rows(reading, after, limit)


async def read_backlog(database: Database, name: str) -> Backlog | None:
    """How far the target of a stream is behind; None if the stream is not enabled."""
    async with database.reading() as reading:
        return await stream_store.read_backlog(reading, name)
