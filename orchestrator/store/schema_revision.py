"""The schema's revision as the database tells it."""

from __future__ import annotations

from orchestrator.store.database import Reading


async def read_schema_revision(reading: Reading) -> str | None:
    """The Alembic revision; None if there is no schema."""
    if (await reading.execute("select to_regclass('alembic_version')")).scalar_one() is None:
        return None
    revision: str | None = (await reading.execute("select version_num from alembic_version")).scalar()
    return revision
