"""A scratch PostgreSQL server: a restored copy that listens on a private socket alone, and is gone afterwards.

It reads none of the original's configuration, archives nothing, admits no replication and starts no connection. The kernel
kills it with the process that started it; what that leaves is removed by `clear_leftovers`.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from berth.cli.deployment.backup import programs
from berth.cli.deployment.backup.problems import BackupProblem
from berth.cli.deployment.backup.wal import stage
from berth.local.servers import system_user

PREFIX = "berth-scratch-"
USERS = ("postgres", "berth", "berth_operator")
"""Tried in this order: the server's first superuser need not be called postgres."""
PORT = 5432
STOP_SECONDS_MAX = 30.0
TARGET_NOT_REACHED = "recovery ended before configured recovery target was reached"
INCONSISTENT = "requested recovery stop point is before consistent recovery point"


class Scratch:
    """One scratch server in a folder of `place`."""

    def __init__(self, place: Path, programs_dir: Path | None) -> None:
        identity = f"{PREFIX}{secrets.token_hex(6)}"
        self.folder = place.absolute() / identity
        # The address of a socket has at most 107 bytes, and the place may be deep.
        self.sockets = Path(tempfile.gettempdir()) / identity
        self.data = self.folder / "data"
        self.wal = self.folder / "wal"
        self.log = self.folder / "postgres.log"
        self._postgres = programs.program("postgres", programs_dir)
        self._user: str | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def copy(self, data: Path, wal: Path, first: int, segment_bytes: int) -> int:
        """Copy a data directory, and the WAL behind it. Returns the number of WAL segments. Raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True)
        self.sockets.mkdir(mode=0o700)
        self._user = system_user(self.folder, Path(self._postgres))
        self._own(self.sockets)
        shutil.copytree(data, self.data, symlinks=True)
        # The original's ALTER SYSTEM, which a server reads whatever else it is given.
        (self.data / "postgresql.auto.conf").write_text("")
        (self.data / "recovery.signal").touch()
        self.wal.mkdir()
        count = stage(wal, first, segment_bytes, self.wal, self._own, link=self._user is None)
        (self.folder / "empty.conf").touch()
        (self.folder / "hba.conf").write_text("local all all trust\n")
        self.log.touch()
        for path in (self.folder, self.wal, self.folder / "empty.conf", self.folder / "hba.conf", self.log, self.data):
            self._own(path)
        if self._user is not None:
            for path in self.data.rglob("*"):
                self._own(path)
        self.data.chmod(0o700)
        return count

    def _own(self, path: Path) -> None:
        if self._user is not None:
            entry = pwd.getpwnam(self._user)
            os.chown(path, entry.pw_uid, entry.pw_gid, follow_symlinks=False)

    def start(self, at: datetime | None) -> None:
        """Begin the recovery, up to `at` or to the end of the WAL."""
        settings = {
            "config_file": f"{self.folder}/empty.conf", "hba_file": f"{self.folder}/hba.conf",
            "ident_file": f"{self.folder}/empty.conf", "listen_addresses": "", "port": str(PORT),
            "unix_socket_directories": str(self.sockets), "restore_command": "test -f ../wal/%f && cp ../wal/%f %p",
            "recovery_target_timeline": "latest", "recovery_target_action": "promote", "archive_mode": "off",
            "max_wal_senders": "0", "primary_conninfo": "", "ssl": "off", "shared_preload_libraries": "",
            # Connections before the end of the recovery would need the original's settings of capacity.
            "hot_standby": "off", "max_connections": "20", "shared_buffers": "128MB", "autovacuum": "off",
            "fsync": "off", "full_page_writes": "off", "log_min_messages": "warning",
        }  # fmt: skip
        if at is not None:
            settings["recovery_target_time"] = at.isoformat()
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        entry = None if self._user is None else pwd.getpwnam(self._user)
        account = (0, 0) if entry is None else (entry.pw_uid, entry.pw_gid)
        with self.log.open("ab") as log:
            self._process = programs.start(
                [self._postgres, "-D", str(self.data), *arguments],
                programs.plain_environment(),
                error=log,
                cwd="/",
                start_new_session=True,
                account=account,
            )

    def wait_restored(self, database: str, seconds_max: float) -> str:
        """Return the connection string when the recovery has ended. Raises `BackupProblem`."""
        assert self._process is not None
        deadline = time.monotonic() + seconds_max
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise self._ended()
            for user in USERS:
                url = make_conninfo(
                    "", host=str(self.sockets), port=PORT, user=user, dbname=database, connect_timeout=5
                )
                try:
                    with psycopg.connect(url, autocommit=True) as connection:
                        row = connection.execute("select pg_is_in_recovery()").fetchone()
                        if row == (False,):
                            return url
                except psycopg.OperationalError as error:
                    if "does not exist" not in str(error):
                        break  # not yet
                    if user == USERS[-1]:
                        raise BackupProblem("restore_failed", f"the restored server was not usable: {error}") from error
            time.sleep(0.05)
        raise BackupProblem("restore_failed", f"the scratch server was still recovering after {seconds_max:g} s")

    def _ended(self) -> BackupProblem:
        lines = self.log.read_text(errors="replace").splitlines()
        said = " | ".join(line for line in lines if "FATAL" in line or "PANIC" in line) or " | ".join(lines[-3:])
        if TARGET_NOT_REACHED in said:
            return BackupProblem(
                "target_not_reached",
                "the WAL ends before the moment that was asked for, or has no commit after it: name an earlier one",
            )
        if INCONSISTENT in said:
            return BackupProblem(
                "target_before_backup", "the moment lies before the end of the backup: name a later one"
            )
        if "No space left" in said:
            return BackupProblem(
                "backup_disk_full", f"the scratch server ended: {said}; name another place with --scratch"
            )
        return BackupProblem("restore_failed", f"the scratch server ended: {said or 'it said nothing'}")

    def remove(self) -> None:
        """Stop the server at once and delete everything."""
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGQUIT)
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for folder in (self.sockets, self.folder):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def scratch_server(place: Path, programs_dir: Path | None) -> Iterator[Scratch]:
    """A scratch server that is removed at the end of the context."""
    scratch = Scratch(place, programs_dir)
    try:
        yield scratch
    finally:
        scratch.remove()


def clear_leftovers(place: Path) -> int:
    """End and delete the scratch servers that a killed verification left in `place`; returns their number.

    The caller holds the lock of verifications, so that each of them is a leftover.
    """
    found = [folder for folder in place.absolute().glob(f"{PREFIX}*") if folder.is_dir()]
    for folder in found:
        _end(folder / "data")
        shutil.rmtree(Path(tempfile.gettempdir()) / folder.name, ignore_errors=True)
        shutil.rmtree(folder)
    return len(found)


def _end(data: Path) -> None:
    """Kill the server on this data directory, which needs nothing of an orderly end."""
    try:
        process = psutil.Process(int((data / "postmaster.pid").read_text().splitlines()[0]))
        if str(data) in process.cmdline():
            process.kill()
            process.wait(STOP_SECONDS_MAX)
    except (OSError, ValueError, IndexError, psutil.Error):
        return
