"""Rows of the audit that were recorded long ago: a test chains them as `audit_advance` does, by an earlier clock."""

from __future__ import annotations

import psycopg

from migrations.functions.files import read_functions

INSERT = (
    b"insert into audit (at, principal_kind, principal_id, action, subject, detail)"
    b" values (clock_timestamp() - make_interval(days => %s), 'system', 'test', 'thing.turn', 'things/' || %s,"
    b' \'{"n": 1.5, "text": "a\\u2028b"}\')'
)


def chain_ago(connection: psycopg.Connection, days: int, rows: int = 0) -> None:
    """Insert so many rows, and chain all waiting ones, as if it were `days` days ago. Calls go from the past to the present."""
    for number in range(rows):
        connection.execute(INSERT, (days, str(number)))
    (text,) = [file.text for file in read_functions() if file.name == "audit_advance"]
    past = text.replace("function audit_advance(", "function audit_advance_ago(").replace(
        "clock_timestamp()", f"clock_timestamp() - make_interval(days => {days:d})"
    )
    assert past != text
    connection.execute(past.encode())
    while connection.execute("select audit_advance_ago(1000)").fetchone() != (0,):
        pass
    connection.execute("drop function audit_advance_ago")


def sequences(connection: psycopg.Connection) -> list[int]:
    """The rows of the chain that the database has."""
    return [row[0] for row in connection.execute("select sequence from audit_chain order by sequence").fetchall()]


def tamper(connection: psycopg.Connection, statement: str) -> None:
    """Run a statement as the owner of the database, with the triggers switched off."""
    connection.execute("set session_replication_role = replica")
    connection.execute(statement.encode())
    connection.execute("reset session_replication_role")
