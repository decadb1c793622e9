"""The backup directory of a local stack."""

from __future__ import annotations

from pathlib import Path

import psycopg

from berth.cli.deployment.backup.directory import BackupDirectory
from berth.cli.deployment.backup.problems import BackupProblem
from berth.cli.known_stack import StackProblem


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
