"""Privileges of the roles that own nothing (`migrations.roles`). The role that migrates owns the schema."""

from __future__ import annotations

from pathlib import Path

from psycopg import Connection
from psycopg.rows import TupleRow

from migrations.roles import Role

_FILE = Path(__file__).parent / "privileges.sql"


def apply_privileges(connection: Connection[TupleRow]) -> bool:
    """Bring the privileges of each role that the server has to those of `privileges.sql`; False if it has none.

    A process without its role connects as the owner. Tables and functions must be owned by the connection's role.
    """
    if connection.execute("select from pg_roles where rolname = any (%s) limit 1", (list(Role),)).fetchone() is None:
        return False
    connection.execute(_FILE.read_bytes())
    return True
