"""Refuses connections to a database while it is being restored to an earlier moment (docs/how-to/restore-from-backup.md).

Each new connection looks for an open restore. `berth restore` opens one before any process may connect, and ends the sessions of
those that had connected before, so that no request pays for the look.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import tuple_row

OPEN = b"select epoch from restores where closed_at is null"


class RestoreOpen(psycopg.OperationalError):
    """The database is being restored; nothing may be served until `berth restore` has finished. `epoch` names the restore."""

    def __init__(self, epoch: UUID) -> None:
        super().__init__(
            f"the database is being restored to an earlier moment (restore {epoch}); nothing is served until"
            " `berth restore run` has finished"
        )
        self.epoch = epoch


async def require_no_restore(connection: psycopg.AsyncConnection[Any]) -> None:
    """Raise `RestoreOpen` if a restore is open. For a new connection in autocommit mode.

    A schema from before the table of restores has none.
    """
    try:
        cursor = await psycopg.AsyncCursor(connection, row_factory=tuple_row).execute(OPEN)
    except psycopg.errors.UndefinedTable:
        return
    row = await cursor.fetchone()
    if row is not None:
        raise RestoreOpen(row[0])


def require_no_restore_now(connection: psycopg.Connection[Any]) -> None:
    """As `require_no_restore`, for a connection that blocks its thread."""
    try:
        row = psycopg.Cursor(connection, row_factory=tuple_row).execute(OPEN).fetchone()
    except psycopg.errors.UndefinedTable:
        return
    if row is not None:
        raise RestoreOpen(row[0])


def restore_behind(error: BaseException | None) -> RestoreOpen | None:
    """The refusal that an error was raised for; None if it has another cause."""
    while error is not None and not isinstance(error, RestoreOpen):
        error = error.__cause__ or error.__context__
    return error
