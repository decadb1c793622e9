"""Privileges of the role that running processes use. The role that migrates owns the schema."""

from __future__ import annotations

from pathlib import Path

from psycopg import Connection
from psycopg.rows import TupleRow

PROCESS_ROLE = "berth_process"
_FILE = Path(__file__).parent / "privileges.sql"


def apply_privileges(connection: Connection[TupleRow]) -> bool:
    """Bring the privileges of `berth_process` to those of `privileges.sql`; False if the server has no such role.

    Without it the processes connect as the owner. Tables and functions must be owned by the connection's role.
    """
    if connection.execute("select from pg_roles where rolname = %s", (PROCESS_ROLE,)).fetchone() is None:
        return False
    connection.execute(_FILE.read_bytes())
    return True
