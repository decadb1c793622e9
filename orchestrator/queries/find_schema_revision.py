"""Whether the database is one this code can work on."""

from __future__ import annotations

from orchestrator.domain.errors import DatabaseUnavailable
from orchestrator.store.database import Database
from orchestrator.store.schema_revision import read_schema_revision


async def require_schema(database: Database) -> None:
    """Return if the schema is there; raise `DatabaseUnavailable` saying what is missing."""
    async with database.reading() as reading:
        if await read_schema_revision(reading) is None:
            raise DatabaseUnavailable("the database has no schema yet; run `berth migrate`")
