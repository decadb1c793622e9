"""Whether the database is one this code can work on."""

from __future__ import annotations

from orchestrator.domain.errors import DatabaseUnavailable
from orchestrator.store.database import Database
from orchestrator.store.schema_revision import read_schema_revision

REVISION_NEEDED = "0007"
"""The oldest schema that this code works on. A newer one is fine: migrations expand before they contract (TRAPS)."""


async def require_schema(database: Database) -> None:
    """Return if the schema is there and new enough; raise `DatabaseUnavailable` saying what is missing."""
    async with database.reading() as reading:
        found = await read_schema_revision(reading)
    if found is None:
        raise DatabaseUnavailable("the database has no schema yet; run `berth migrate`")
    if found < REVISION_NEEDED:
        raise DatabaseUnavailable(
            f"the database's schema is {found} and this Berth needs {REVISION_NEEDED}; run `berth migrate`"
        )
