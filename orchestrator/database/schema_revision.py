"""The schema's revision, read from the database."""

from __future__ import annotations

from orchestrator.database.calls import CallGroup
from orchestrator.database.transactions import Database, Reading
from orchestrator.problems import DatabaseUnavailable


async def read_schema_revision(reading: Reading) -> str | None:
    """The Alembic revision; None if there is no schema."""
    if (await reading.execute("select to_regclass('alembic_version')")).scalar_one() is None:
        return None
    revision: str | None = (await reading.execute("select version_num from alembic_version")).scalar()
    return revision


REVISION_NEEDED = "0047"
"""The oldest schema that this code works on. A newer one is fine: migrations expand before they contract (TRAPS)."""


async def require_schema(database: Database) -> None:
    """Return if the schema is there and new enough; raise `DatabaseUnavailable` saying what is missing."""
    async with database.reading() as reading:
        found = await read_schema_revision(reading)
    _require_new_enough(found)


async def require_schema_for_anyone(database: Database) -> None:
    """As `require_schema`, over the connections for unauthenticated callers."""
    async with database.read_call(CallGroup.ANYONE) as call:
        there = await call.value("select to_regclass('alembic_version') is not null", {})
        found = await call.value("select max(version_num) from alembic_version", {}) if there else None
    _require_new_enough(found)


def _require_new_enough(found: str | None) -> None:
    if found is None:
        raise DatabaseUnavailable("the database has no schema yet; run `berth migrate`")
    if found < REVISION_NEEDED:
        raise DatabaseUnavailable(
            f"the database's schema is {found} and this Berth needs {REVISION_NEEDED}; run `berth migrate`"
        )
