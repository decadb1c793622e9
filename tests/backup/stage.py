"""A PostgreSQL server with Berth's schema, a table to write markers into, and its backup directory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psycopg

import migrations
from berth.cli.deployment.backup.base_backup import Run, run_backup
from berth.cli.deployment.backup.directory import BackupDirectory
from berth.cli.deployment.backup.retention import Kept
from berth.cli.deployment.backup.stream_status import StreamStatus, read_status
from berth.cli.deployment.backup.verifying import Asked, Result, verify_backup
from berth.cli.settings import Settings
from berth.local.servers import LocalPostgres, free_port, new_password
from tests.berth.commands import environment
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
KEEP = Kept(7, 14)
TABLE = "create table markers (id bigint generated always as identity primary key, at timestamptz default clock_timestamp())"


@dataclass
class Stage:
    """The server, the role of backups on it, and where its backups go."""

    server: LocalPostgres
    url: str
    directory: BackupDirectory

    def back_up(self, kept: Kept = KEEP) -> Run:
        """One base backup."""
        return run_backup(self.directory, self.url, None, kept)

    def verify(self, at: datetime | None = None, name: str | None = None) -> Result:
        """A restore into a scratch server."""
        scratch = self.directory.path / "scratch"
        return verify_backup(self.directory, Asked(name, at, "berth", scratch, None, 60.0), Settings())

    def mark(self) -> datetime:
        """Commit a marker; a moment after it, before which no later one is committed."""
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            connection.execute("insert into markers default values")
            row = connection.execute("select clock_timestamp()").fetchone()
        assert row is not None
        moment: datetime = row[0]
        return moment

    def marks(self) -> int:
        """How many markers the server has."""
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            row = connection.execute("select count(*) from markers").fetchone()
        assert row is not None
        return int(row[0])

    def switch_wal(self) -> None:
        """End the present segment."""
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            connection.execute("select pg_switch_wal()")

    def variables(self, **more: str) -> dict[str, str]:
        """The environment of a command on this stage."""
        named = {"BERTH_BACKUP_DIR": str(self.directory.path), "BERTH_BACKUP_DATABASE_URL": self.url}
        return environment(**named, PYTHONPATH=os.fspath(ROOT), **more)

    def status(self) -> StreamStatus | None:
        """What the stream process stored."""
        return read_status(self.directory)

    def wait_streamed(self) -> None:
        """Return when the stream has everything that the server had at the call."""
        self.wait_confirmed(self.flushed())

    def flushed(self) -> int:
        """Up to where the server's WAL is on its disk."""
        return self._number("select pg_current_wal_flush_lsn() - '0/0'")

    def wait_confirmed(self, position: int) -> None:
        """Return when the stream has WAL up to a position."""
        query = "select coalesce(max(restart_lsn - '0/0'), 0) from pg_replication_slots where active"
        wait_for(lambda: self._number(query) >= position, "the stream has the WAL")

    def _number(self, query: str) -> int:
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return int(row[0])

    @contextmanager
    def streaming(self, **more: str) -> Iterator[subprocess.Popen[bytes]]:
        """`berth backup stream` as a process, until the end of the context."""
        command = [sys.executable, "-m", "berth.cli", "backup", "stream", "--sample-seconds", "0.1"]
        process = subprocess.Popen(command, env=self.variables(**more), cwd=ROOT, stderr=subprocess.PIPE)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=30)


@contextmanager
def running_server(directory: Path) -> Iterator[LocalPostgres]:
    """A server with Berth's schema and no other database."""
    server = LocalPostgres(
        directory,
        free_port(),
        new_password(),
        {"fsync": "off", "max_wal_size": "256MB", "shared_buffers": "32MB", "track_commit_timestamp": "on"},
    )
    server.start()
    try:
        migrations.upgrade(server.url())
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(TABLE)
        yield server
    finally:
        server.stop()
