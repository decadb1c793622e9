"""Privileges and policies of the roles that own nothing (`migrations.roles`). The role that migrates owns the schema."""

from __future__ import annotations

from pathlib import Path

from psycopg import Connection
from psycopg.rows import TupleRow

from migrations.roles import Role

_FILES = [Path(__file__).parent / name for name in ("privileges.sql", "policies.sql")]


def apply_privileges(connection: Connection[TupleRow]) -> bool:
    """Bring the privileges of each role that the server has to those of `privileges.sql`; False if it has none.

    The same for the policies of `policies.sql`, which limit the public API's role to rows of the tenants that it names.
    A process without its role connects as the owner. Tables and functions must be owned by the connection's role.
    """
    if connection.execute("select from pg_roles where rolname = any (%s) limit 1", (list(Role),)).fetchone() is None:
        return False
    for file in _FILES:
        connection.execute(file.read_bytes())
    return True
