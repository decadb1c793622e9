"""Whether the database's schema is one that this code works on."""

from __future__ import annotations

from berth.process.schema_window import why_unusable
from orchestrator.database.calls import CallGroup
from orchestrator.database.transactions import Database, Reading
from orchestrator.problems import DatabaseUnavailable

_OLDEST_PROCESS = "select oldest_process from function_generation"


async def read_schema_revision(reading: Reading) -> str | None:
    """The Alembic revision; None if there is no schema."""
    if (await reading.execute("select to_regclass('alembic_version')")).scalar_one() is None:
        return None
    revision: str | None = (await reading.execute("select version_num from alembic_version")).scalar()
    return revision


async def require_schema(database: Database) -> None:
    """Return if the schema is there, new enough, and serves this code; raise `DatabaseUnavailable` with the next step."""
    async with database.reading() as reading:
        found = await read_schema_revision(reading)
        _require(why_unusable(found, None))
        _require(why_unusable(found, (await reading.execute(_OLDEST_PROCESS)).scalar_one()))


async def require_schema_for_anyone(database: Database) -> None:
    """As `require_schema`, over the connections for unauthenticated callers."""
    async with database.read_call(CallGroup.ANYONE) as call:
        there = await call.value("select to_regclass('alembic_version') is not null", {})
        found = await call.value("select max(version_num) from alembic_version", {}) if there else None
        _require(why_unusable(found, None))
        _require(why_unusable(found, await call.value(_OLDEST_PROCESS, {})))


def _require(why: str | None) -> None:
    if why is not None:
        raise DatabaseUnavailable(why)
