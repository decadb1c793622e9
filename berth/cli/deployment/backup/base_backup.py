"""`berth backup run`: takes one base backup. It has its final name only when it is complete, checked and on the disk."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from berth.cli.deployment.backup import programs
from berth.cli.deployment.backup.catalogue import DATA, Backup, describe
from berth.cli.deployment.backup.crash_points import CrashPoint
from berth.cli.deployment.backup.directory import (
    RETENTION_LOCK,
    RUN_LOCK,
    UNFINISHED,
    BackupDirectory,
    of_system,
)
from berth.cli.deployment.backup.manifest import check_files, check_wal, read_manifest
from berth.cli.deployment.backup.problems import BackupProblem
from berth.cli.deployment.backup.replication import Server, ask
from berth.cli.deployment.backup.retention import Kept, Removed, apply_retention
from berth.cli.deployment.backup.wal import position
from berth.process.crash_points import reach
from berth.process.durable_directories import sync_directory
from berth.process.json_objects import JsonObject


@dataclass(frozen=True, slots=True)
class Run:
    """What a run did. `removed` is None if retention was left to the next run, because a verification reads the directory."""

    backup: Backup
    removed: Removed | None


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a copy may make no progress while its server does not answer, and how often that is checked, in seconds."""

    stalled_seconds: float = 60.0
    check_seconds: float = 15.0


def run_backup(
    directory: BackupDirectory, url: str, programs_dir: Path | None, kept: Kept, patience: Patience | None = None
) -> Run:
    """Take a backup of the server at `url`, then delete what retention lets go. Raises `BackupProblem`.

    A server that freezes, whose connections stay open, ends the run. A failure or a kill leaves every earlier backup as it was;
    what it left is deleted by the next run.
    """
    server = ask(url)
    directory.claim_for(server.system_identifier)
    with directory.locked(RUN_LOCK, "another `berth backup run` is running") as lock:
        try:
            directory.clear_unfinished()
            backup = _take(directory, server, url, programs_dir, lock, patience or Patience())
            try:
                with directory.locked(RETENTION_LOCK, "`berth backup verify` is running"):
                    removed = apply_retention(directory, kept)
            except BackupProblem as problem:
                if problem.code != "backup_in_progress":
                    raise
                removed = None
        except OSError as error:
            raise of_system(error, directory.path) from error
        return Run(backup, removed)


def _take(
    directory: BackupDirectory, server: Server, url: str, programs_dir: Path | None, lock: int, patience: Patience
) -> Backup:
    started = datetime.now(UTC)
    name = started.strftime("%Y%m%dT%H%M%S%fZ")
    unfinished = directory.base / f"{UNFINISHED}{name}"
    unfinished.mkdir(mode=0o700)
    data = unfinished / DATA
    try:
        parameters, environment = programs.without_password(url)
        copy = [
            programs.program("pg_basebackup", programs_dir), f"--dbname={parameters}", f"--pgdata={data}", "--format=plain",
            "--wal-method=stream", "--checkpoint=fast", "--manifest-checksums=SHA256", f"--label=berth {name}", "--no-password",
        ]  # fmt: skip
        programs.run(
            copy, environment, "pg_basebackup", holding=lock, watch=Progress(url, data, patience.stalled_seconds).require,
            watch_seconds=patience.check_seconds,
        )  # fmt: skip
        reach(CrashPoint.AFTER_COPY)
        manifest = read_manifest(data)
        check_files(data, manifest)
        check_wal(data, manifest, programs_dir, lock)
        backup = _described(data, manifest, name, started, server)
        describe(unfinished, backup)
        sync_directory(unfinished)
        reach(CrashPoint.BEFORE_RENAME)
        unfinished.rename(directory.base / name)
        sync_directory(directory.base)
        reach(CrashPoint.AFTER_RENAME)
    except (BackupProblem, OSError):
        directory.clear_unfinished()
        raise
    return backup


class Progress:
    """Of a copy: its server answers, or the copy grows."""

    def __init__(self, url: str, data: Path, stalled_seconds: float) -> None:
        self._url = url
        self._data = data
        self._stalled_seconds = stalled_seconds
        self._bytes = 0
        self._moved = time.monotonic()

    def require(self) -> None:
        """Raise `BackupProblem` once there was no progress for too long."""
        try:
            ask(self._url)
        except BackupProblem:
            # The server may answer no other connection while it sends: the size is read then only, as it costs a walk.
            size = _size_below(self._data)
            if size > self._bytes:
                self._bytes, self._moved = size, time.monotonic()
        else:
            self._moved = time.monotonic()
        silent = time.monotonic() - self._moved
        if silent > self._stalled_seconds:
            raise BackupProblem(
                "backup_server_unreachable",
                f"the PostgreSQL server has neither answered nor sent anything for {silent:.0f} s; the copy was given up",
            )


def _size_below(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(path) / name).lstat().st_size
            except FileNotFoundError:
                continue
    return total


def _described(data: Path, manifest: JsonObject, name: str, started: datetime, server: Server) -> Backup:
    """The description, from the manifest. Raises `BackupProblem` if it is another server's than a moment ago."""
    if str(manifest["System-Identifier"]) != server.system_identifier:
        raise BackupProblem("backup_other_system", "the address led to another PostgreSQL server during the backup")
    ranges = manifest["WAL-Ranges"]
    size = sum(int(file["Size"]) for file in manifest["Files"])
    backup = Backup(
        name, started.isoformat(), datetime.now(UTC).isoformat(), int(ranges[-1]["Timeline"]),
        position(ranges[0]["Start-LSN"]), position(ranges[-1]["End-LSN"]), size, server.segment_bytes,
    )  # fmt: skip
    return replace(
        backup, bytes=size + sum(file.stat().st_size for file in (data / "pg_wal").iterdir() if file.is_file())
    )
