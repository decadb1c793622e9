"""A consumer's position in a table of its database: everything up to `version` is done.

Statements for psycopg; each says what it guarantees to the transaction that it runs in.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from berth.client.log_errors import PositionLost

POSITIONS_TABLE = "berth_consumer_positions"
Connection = psycopg.AsyncConnection[Any]

_CREATE = SQL(
    "create table if not exists {table} (consumer text primary key, version bigint not null check (version >= 0), "
    "updated_at timestamptz not null default clock_timestamp())"
)
_BEGIN = SQL("insert into {table} (consumer, version) values (%s, %s) on conflict (consumer) do nothing")
_READ = SQL("select version from {table} where consumer = %s")
_LOCK = SQL("select version from {table} where consumer = %s for no key update")
_RAISE = SQL("update {table} set version = %s, updated_at = clock_timestamp() where consumer = %s")


async def create_positions_table(connection: Connection, table: str = POSITIONS_TABLE) -> None:
    """Make the table that positions are kept in, unless it is there; commit is the caller's."""
    await connection.execute(_CREATE.format(table=_named(table)))


async def begin_position(connection: Connection, table: str, consumer: str, version: int) -> int:
    """The consumer's position; a consumer that has none begins behind `version`."""
    await connection.execute(_BEGIN.format(table=_named(table)), (consumer, version))
    return await _one(connection, _READ, table, consumer)


async def lock_position(connection: Connection, table: str, consumer: str) -> int:
    """The consumer's position, locked until this transaction ends. Raises `PositionLost`."""
    return await _one(connection, _LOCK, table, consumer)


async def move_position(connection: Connection, table: str, consumer: str, version: int) -> None:
    """Everything up to `version` is done if this transaction commits; the position is locked."""
    await connection.execute(_RAISE.format(table=_named(table)), (version, consumer))


async def _one(connection: Connection, statement: SQL, table: str, consumer: str) -> int:
    row = await (await connection.execute(statement.format(table=_named(table)), (consumer,))).fetchone()
    if row is None:
        raise PositionLost(f"the consumer {consumer} has no position any more", code="position_lost")
    return int(row[0])


def _named(table: str) -> Identifier:
    return Identifier(*table.split("."))
