"""The backup directory: its mark, its locks, and files that appear whole or not at all.

backup.json            the mark: format, system identifier of the PostgreSQL server whose backups are here
base/<name>/           one base backup: data/ (a data directory), backup.json (its description), verified.json (the last proof)
wal/<run>/             one unbroken run of the WAL stream: segments, the unfinished one as .partial, timeline histories
keys/<time>.escrow     key files, encrypted to the recovery public key
stream.json            what the stream process last measured
scratch/               scratch servers of `berth backup verify`, unless another place is named
*.lock                 locks of the kernel (flock): they end with their holder; scratch/ has another
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from berth.cli.deployment.backup.problems import BackupProblem
from berth.process.durable_directories import sync_directory
from berth.process.json_objects import JsonObject

MARK = "backup.json"
FORMAT = 1
RUN_LOCK, STREAM_LOCK, RETENTION_LOCK, VERIFY_LOCK = "run.lock", "stream.lock", "retention.lock", "verify.lock"
RESTORE_LOCK = "restore.lock"
UNFINISHED, DISCARDED = ".unfinished-", ".discarded-"
FOLDERS = ("base", "wal", "keys")


class BackupDirectory:
    """One backup directory. Making the object touches nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def base(self) -> Path:
        """Base backups."""
        return self.path / "base"

    @property
    def wal(self) -> Path:
        """Streamed WAL."""
        return self.path / "wal"

    @property
    def keys(self) -> Path:
        """Escrowed key files."""
        return self.path / "keys"

    def system_identifier(self) -> str:
        """Of the server whose backups are here. Raises `BackupProblem` if this is not a backup directory."""
        mark = read_json(self.path / MARK)
        if mark is None or mark.get("format") != FORMAT or not isinstance(mark.get("system_identifier"), str):
            raise BackupProblem(
                "not_backup_directory",
                f"{self.path} is not a backup directory of this version; `berth backup run` makes one of an empty directory",
            )
        return str(mark["system_identifier"])

    def claim_for(self, system_identifier: str) -> None:
        """Make this the backup directory of a server, unless it is. Raises `BackupProblem` for another server's, or other files.

        Of two that make it at once for different servers, the second is refused.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not (self.path / MARK).exists():
                self._require_empty()
                create_whole(self.path / MARK, {"format": FORMAT, "system_identifier": system_identifier})
            for folder in FOLDERS:
                (self.path / folder).mkdir(mode=0o700, exist_ok=True)
            sync_directory(self.path)
        except OSError as error:
            raise of_system(error, self.path) from error
        known = self.system_identifier()
        if known != system_identifier:
            raise BackupProblem(
                "backup_other_system",
                f"{self.path} holds backups of the server with system identifier {known}, not {system_identifier};"
                " name another directory, or check the address of the database",
            )

    def _require_empty(self) -> None:
        # Locks, and the mark that another process is just making.
        foreign = [
            entry.name
            for entry in self.path.iterdir()
            if not entry.name.endswith(".lock")
            and not entry.name.startswith(f".{MARK}")
            and entry.name not in (MARK, *FOLDERS)
        ]
        if foreign:
            raise BackupProblem(
                "not_backup_directory",
                f"{self.path} holds {min(foreign)} and is not a backup directory; name an empty one",
            )

    @contextmanager
    def locked(self, name: str, busy: str, *, shared: bool = False) -> Iterator[int]:
        """Hold a lock of the directory; yields its file descriptor. Raises `backup_in_progress` with `busy` if it is held."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path / name, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise of_system(error, self.path) from error
        try:
            try:
                fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BackupProblem(
                    "backup_in_progress", f"{busy} in {self.path}; run this again when it has ended"
                ) from error
            yield descriptor
        finally:
            os.close(descriptor)

    def clear_unfinished(self) -> None:
        """Delete what an interrupted run left. The caller holds the run's lock and the retention's."""
        for entry in self.base.iterdir():
            if entry.name.startswith((UNFINISHED, DISCARDED)):
                shutil.rmtree(entry)


def of_system(error: OSError, path: Path) -> BackupProblem:
    """The problem that an error of the operating system means."""
    code = "backup_disk_full" if error.errno in (28, 122) else "backup_failed"
    return BackupProblem(code, f"{error.filename or path}: {error.strerror or error}")


def read_json(path: Path) -> JsonObject | None:
    """A JSON object in a file; None if there is no file or it is damaged. Raises `BackupProblem` if it may not be read."""
    try:
        found = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        raise of_system(error, path) from error
    return found if isinstance(found, dict) else None


def write_whole(path: Path, content: JsonObject | bytes) -> None:
    """Replace a file durably, 0600: a reader or a crash sees the old content or the new, never half."""
    aside = _write_aside(path, content)
    try:
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    sync_directory(path.parent)


def create_whole(path: Path, content: JsonObject | bytes) -> None:
    """Create a file durably, 0600, unless there is one."""
    aside = _write_aside(path, content)
    try:
        with suppress(FileExistsError):
            os.link(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    sync_directory(path.parent)


def _write_aside(path: Path, content: JsonObject | bytes) -> Path:
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    data = content if isinstance(content, bytes) else json.dumps(content, indent=2).encode() + b"\n"
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    return aside
