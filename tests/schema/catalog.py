"""The guards that the migrated database has, read from PostgreSQL's catalog."""

from __future__ import annotations

from typing import Any

import psycopg

# Constraints of partitions repeat those of their parent.
_CONSTRAINTS = """
select conname from pg_constraint
where connamespace = 'public'::regnamespace and contype = %s and conparentid = 0 and conrelid <> 'alembic_version'::regclass"""

_UNIQUE_INDEXES = """
select i.relname, t.relname, array(select attname from pg_attribute where attrelid = i.oid order by attnum)
from pg_index x join pg_class i on i.oid = x.indexrelid join pg_class t on t.oid = x.indrelid
where x.indisunique and not x.indisexclusion and not t.relispartition and t.relnamespace = 'public'::regnamespace
  and t.relname <> 'alembic_version'"""

_FOREIGN_KEYS = """
select conname, c.relname, p.relname from pg_constraint k join pg_class c on c.oid = conrelid join pg_class p on p.oid = confrelid
where contype = 'f' and connamespace = 'public'::regnamespace and conparentid = 0"""

_TRIGGERS = "select tgname from pg_trigger where not tgisinternal and tgparentid = 0"


def check_constraints(connection: psycopg.Connection[Any]) -> set[str]:
    """Names of CHECK constraints."""
    return {name for (name,) in connection.execute(_CONSTRAINTS, ("c",))}


def exclusion_constraints(connection: psycopg.Connection[Any]) -> set[str]:
    """Names of EXCLUDE constraints."""
    return {name for (name,) in connection.execute(_CONSTRAINTS, ("x",))}


def unique_indexes(connection: psycopg.Connection[Any]) -> dict[str, tuple[str, frozenset[str]]]:
    """Table and columns of each unique index, primary keys and unique constraints included."""
    return {name: (table, frozenset(columns)) for name, table, columns in connection.execute(_UNIQUE_INDEXES)}


def foreign_keys(connection: psycopg.Connection[Any]) -> dict[str, tuple[str, str]]:
    """Referring and referred table of each foreign key."""
    return {name: (table, parent) for name, table, parent in connection.execute(_FOREIGN_KEYS)}


def triggers(connection: psycopg.Connection[Any]) -> set[str]:
    """Names of triggers."""
    return {name for (name,) in connection.execute(_TRIGGERS)}
