"""The tables in Python (`orchestrator/*/tables.py`) are those of the migrated database, in both directions."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool

import orchestrator
from berth.local.servers import LocalPostgres
from migrations.upgrading import sqlalchemy_url
from orchestrator.database.metadata import METADATA
from tests.databases import empty_database

ROOT = Path(orchestrator.__file__).parents[1]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in ROOT.glob("orchestrator/**/tables.py")
)
NOUNS = [module.split(".")[1] for module in MODULES]
for module in MODULES:
    importlib.import_module(module)

PARTITIONS = "select relname from pg_class where relispartition"

# What a definition is, by the names of its table and its own: text that PostgreSQL writes, so two spellings are equal.
DEFINITIONS = {
    "columns": """
        select c.relname, a.attname, concat_ws(' ', format_type(a.atttypid, a.atttypmod),
               case when a.attnotnull then 'not null' end, nullif(a.attidentity, ''),
               'default ' || pg_get_expr(d.adbin, d.adrelid)) || ' #' || a.attnum
        from pg_attribute a join pg_class c on c.oid = a.attrelid left join pg_attrdef d on (d.adrelid, d.adnum) = (c.oid, attnum)
        where attnum > 0 and not attisdropped and relkind in ('r', 'p')""",
    # A table that is created has no constraint that is not valid, whatever its statement says.
    "constraints": """
        select c.relname, k.conname, regexp_replace(pg_get_constraintdef(k.oid), ' NOT VALID$', '')
        from pg_constraint k join pg_class c on c.oid = k.conrelid
        where k.contype <> 't'""",
    "domains": """
        select c.typname, k.conname, format_type(c.typbasetype, c.typtypmod) || ' ' || pg_get_constraintdef(k.oid)
        from pg_type c join pg_constraint k on k.contypid = c.oid""",
    "indexes": """
        select c.relname, i.relname, pg_get_indexdef(x.indexrelid)
        from pg_index x join pg_class c on c.oid = x.indrelid join pg_class i on i.oid = x.indexrelid""",
    "storage": """
        select c.relname, '', array(select unnest(reloptions) order by 1)::text || coalesce(pg_get_partkeydef(c.oid), '')
        from pg_class c where relkind in ('r', 'p')""",
    "sequences": """
        select c.relname, '', concat_ws(' ', format_type(seqtypid, null), seqstart, seqincrement, seqmin, seqmax, seqcache)
        from pg_sequence s join pg_class c on c.oid = s.seqrelid""",
}
OWN = " {} c.relnamespace = 'public'::regnamespace and not c.relispartition and c.relname <> 'alembic_version'"
OWN_TYPES = " {} c.typnamespace = 'public'::regnamespace"


def definitions(url: str, kind: str) -> dict[tuple[str, str], str]:
    """Definitions of one kind in a database."""
    query = DEFINITIONS[kind]
    own = OWN_TYPES if kind == "domains" else OWN
    query += own.format("and" if "where" in query.rpartition("from")[2] else "where")
    with psycopg.connect(url) as connection:
        return {(table, name): text for table, name, text in connection.execute(query.encode())}


@pytest.fixture(scope="module")
def created_url(postgres_server: LocalPostgres) -> Iterator[str]:
    """A database that SQLAlchemy created from the tables in Python."""
    with empty_database(postgres_server) as url:
        engine = engine_of(url)
        METADATA.create_all(engine)
        engine.dispose()
        yield url


def engine_of(url: str) -> Engine:
    """Connections by SQLAlchemy, closed after each use."""
    return create_engine(sqlalchemy_url(url), poolclass=NullPool)


def test_every_noun_with_a_schema_file_has_its_tables() -> None:
    assert {"allocations", "database", "log", "placement", "reservations"} <= set(NOUNS)
    assert len(METADATA.tables) > 35


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_the_definitions_are_those_of_the_migrated_database(schema_url: str, created_url: str, kind: str) -> None:
    migrated, created = definitions(schema_url, kind), definitions(created_url, kind)
    assert created == migrated
    assert created


def test_alembic_finds_no_difference(schema_url: str) -> None:
    """Tables, columns, types and nullability. Comments are written in migrations/schema alone."""
    engine = engine_of(schema_url)
    with psycopg.connect(schema_url) as connection:
        partitions = {name for (name,) in connection.execute(PARTITIONS)}

    def included(_: object, name: str | None, kind: str, reflected: bool, compared_to: object) -> bool:
        return kind != "table" or name not in partitions

    with engine.connect() as migrated:
        options: dict[str, Any] = {"compare_type": True, "include_object": included}
        found = compare_metadata(MigrationContext.configure(migrated, opts=options), METADATA)
    assert [difference for difference in found if "comment" not in str(kind_of(difference))] == []


def kind_of(difference: Any) -> str:
    """What Alembic calls it; differences of a column come in lists."""
    return str(difference[0][0] if isinstance(difference, list) else difference[0])
