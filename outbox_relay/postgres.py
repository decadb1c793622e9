"""Connections to Postgres: how they are bounded, and which of their errors pass by themselves."""

from __future__ import annotations

from typing import LiteralString

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from berth.process.passing_states import PASSING_STATES
from berth.process.schema_window import why_unusable
from outbox_relay.problems import RelayProblem

PASSING_ERRORS: tuple[type[psycopg.Error], ...] = (
    psycopg.OperationalError, psycopg.InterfaceError, *map(psycopg.errors.lookup, sorted(PASSING_STATES)),
)  # fmt: skip

# synchronous_commit: a version that NATS has must never be undone by a crash of Postgres.
SESSION = (
    "-c timezone=UTC -c synchronous_commit=on -c lock_timeout=2s -c statement_timeout=20s -c transaction_timeout=30s "
    "-c idle_in_transaction_session_timeout=10s"
)


def bounded_address(database_url: str, name: str) -> str:
    """Connection string for `database_url` with the bounds every session of the relay has; `name` shows in activity.

    Raises `RelayProblem` if the address is not one of PostgreSQL's.
    """
    address = database_url.replace("postgresql+psycopg://", "postgresql://", 1)
    try:
        given = conninfo_to_dict(address)
    except psycopg.ProgrammingError as error:
        raise RelayProblem("BERTH_DATABASE_URL is not a postgresql:// address") from error
    return make_conninfo(
        address,
        application_name=f"berth-relay-{name}",
        options=f"{given.get('options') or ''} {SESSION}".strip(),
        connect_timeout=5,
        keepalives_idle=5,
        keepalives_interval=2,
        keepalives_count=3,
        tcp_user_timeout=10_000,
    )


def place(database_url: str) -> str:
    """Host, port and database of an address, without its secrets, for messages."""
    given = conninfo_to_dict(database_url.replace("postgresql+psycopg://", "postgresql://", 1))
    return f"{given.get('host', 'localhost')}:{given.get('port', 5432)}/{given.get('dbname', '')}"


async def probe(address: str) -> str | None:
    """None if the database answers and its schema serves this relay; else why not, in a few words."""
    try:
        connection = await psycopg.AsyncConnection.connect(address, autocommit=True)
    except PASSING_ERRORS as error:
        return str(error).strip().splitlines()[-1]
    async with connection:
        found = await _value(connection, "select to_regclass('alembic_version')")
        revision = None if found is None else await _value(connection, "select max(version_num) from alembic_version")
        return why_unusable(revision, None) or why_unusable(
            revision, await _value(connection, "select oldest_process from function_generation")
        )


async def _value(connection: psycopg.AsyncConnection[TupleRow], statement: LiteralString) -> str | None:
    row = await (await connection.execute(statement)).fetchone()
    return None if row is None else row[0]
