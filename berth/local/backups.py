"""The backups of a local stack: the role that makes them, and their directory."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import psycopg

from berth.cli.deployment.backup.directory import BackupDirectory
from berth.cli.deployment.backup.problems import BackupProblem
from berth.cli.known_stack import BACKUP_URL_FILE, StackProblem
from berth.local.secret_files import backup_password, write_secret


class BackedUp(Protocol):
    """One PostgreSQL server, or a cluster of them."""

    def url(self, database: str) -> str:
        """Its address as the superuser."""
        ...

    def make_backup_role(self, password: str) -> str:
        """Make the role of `berth backup`, or give it this password anew; return the address as this role."""
        ...


def prepare_backups(server: BackedUp, secrets: Path, directory: Path | None) -> str:
    """Make the role of `berth backup` and store its address, which is returned. Raises as `require_own_backups`."""
    url = server.make_backup_role(backup_password(secrets))
    write_secret(secrets / BACKUP_URL_FILE, url + "\n")
    if directory is not None:
        require_own_backups(directory, server.url("postgres"))
    return url


def require_own_backups(directory: Path, database_url: str) -> None:
    """Raise `StackProblem` if the directory holds the backups of another server, or other files.

    A stream into it would end at once, again and again, until the stack is given up.
    """
    with psycopg.connect(database_url) as connection:
        row = connection.execute("select system_identifier::text from pg_control_system()").fetchone()
    assert row is not None
    try:
        BackupDirectory(directory).claim_for(row[0])
    except BackupProblem as problem:
        raise StackProblem(f"BERTH_BACKUP_DIR: {problem}") from problem
