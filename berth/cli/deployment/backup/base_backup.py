"""`berth backup run`: takes one base backup. It has its final name only when it is complete, checked and on the disk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Run:
    """What a run did. `removed` is None if retention was left to the next run, because a verification reads the directory."""

    backup: Backup
    removed: Removed | None


def run_backup(directory: BackupDirectory, url: str, programs_dir: Path | None, kept: Kept) -> Run:
    """Take a backup of the server at `url`, then delete what retention lets go. Raises `BackupProblem`.

    A failure or a kill leaves every earlier backup as it was; what it left is deleted by the next run.
    """
    server = ask(url)
    directory.claim_for(server.system_identifier)
    with directory.locked(RUN_LOCK, "another `berth backup run` is running") as lock:
        try:
            directory.clear_unfinished()
            backup = _take(directory, server, url, programs_dir, lock)
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


def _take(directory: BackupDirectory, server: Server, url: str, programs_dir: Path | None, lock: int) -> Backup:
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
        programs.run(copy, environment, "pg_basebackup", holding=lock)
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


def _described(data: Path, manifest: dict[str, Any], name: str, started: datetime, server: Server) -> Backup:
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
