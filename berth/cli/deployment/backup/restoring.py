"""`berth backup restore`: a new data directory from a backup and its WAL, which PostgreSQL recovers to a moment at its start."""

from __future__ import annotations

import os
import pwd
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from berth.cli.deployment.backup.catalogue import DATA, find, list_backups
from berth.cli.deployment.backup.crash_points import CrashPoint
from berth.cli.deployment.backup.directory import RESTORE_LOCK, RETENTION_LOCK, UNFINISHED, BackupDirectory, of_system
from berth.cli.deployment.backup.manifest import check_files, read_manifest
from berth.cli.deployment.backup.problems import BackupProblem
from berth.cli.deployment.backup.wal import stage
from berth.process.crash_points import reach
from berth.process.durable_directories import sync_directory

WAL = "restored_wal"
"""In the data directory, where the recovery reads it whatever the directory is called."""
SETTINGS = "postgresql.auto.conf"
# The server starts in its data directory, and the names of WAL files need no quotes. What is left of these settings would end the
# recovery of a standby, or of the next restore, at this moment: the end of the recovery deletes them.
_RECOVERY = """
# begin of berth backup restore
restore_command = 'test -f {wal}/%f && cp {wal}/%f %p'
recovery_target_timeline = 'latest'
recovery_target_action = 'promote'
recovery_end_command = 'sed -i "/^# begin of berth backup/,/^# end of berth backup/d" {settings} && rm -rf {wal}'
{target}# end of berth backup restore
"""
_OF_A_RECOVERY = re.compile(r"^\s*(recovery_\w+|restore_command)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Restored:
    """What was copied. `target`: the moment, None for all WAL; `wal_gap`: streamed WAL behind the backup has a gap."""

    backup: str
    data: str
    target: str | None
    wal_segments: int
    wal_gap: bool


def restore_backup(
    directory: BackupDirectory, data: Path, at: datetime | None, name: str | None, owner: str | None
) -> Restored:
    """Make `data` from the named backup, or the newest that was complete at `at`. It has its name once it is whole.

    `owner`: the system user that PostgreSQL runs as; None: this process's. Raises `BackupProblem`, and then `data` is as before.
    """
    directory.system_identifier()
    own = _owning(owner)
    data = data.absolute()
    with (
        directory.locked(RESTORE_LOCK, "another `berth backup restore` copies"),
        directory.locked(RETENTION_LOCK, "retention is deleting", shared=True),
    ):
        backup = find(directory, name, at)
        source = directory.base / backup.name / DATA
        gap = next(one.wal_gap for one in list_backups(directory) if one.backup == backup)
        unfinished = data.with_name(f"{UNFINISHED}{data.name}")
        try:
            _require_free(data)
            check_files(source, read_manifest(source))
            shutil.rmtree(unfinished, ignore_errors=True)
            data.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(source, unfinished, symlinks=True)
            # Of a recovery that had not ended, or was not tidied up, when the backup was taken.
            shutil.rmtree(unfinished / WAL, ignore_errors=True)
            (unfinished / WAL).mkdir()
            segments = stage(
                directory.wal, backup.first_segment, backup.segment_bytes, unfinished / WAL, own, link=owner is None
            )
            _order_recovery(unfinished, at)
            for path in (unfinished, *unfinished.rglob("*")):
                own(path)
            unfinished.chmod(0o700)
            os.sync()
            reach(CrashPoint.BEFORE_RESTORED)
            unfinished.rename(data)
            sync_directory(data.parent)
        except OSError as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise of_system(error, data) from error
    return Restored(backup.name, str(data), None if at is None else at.isoformat(), segments, gap)


def _owning(owner: str | None) -> Callable[[Path], None]:
    """What makes a path over to the owner."""
    if owner is None:
        if os.geteuid() == 0:
            raise BackupProblem("owner_missing", "PostgreSQL does not run as root: name its system user with --owner")
        return lambda _: None
    try:
        entry = pwd.getpwnam(owner)
    except KeyError:
        raise BackupProblem("owner_missing", f"this machine has no system user {owner}") from None
    return lambda path: os.chown(path, entry.pw_uid, entry.pw_gid, follow_symlinks=False)


def _require_free(data: Path) -> None:
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise BackupProblem(
            "data_directory_in_use", f"{data} is not empty; move it away: what the lost database left may be needed"
        )
    if data.is_mount():
        raise BackupProblem(
            "data_directory_in_use",
            f"{data} is a mount point, which cannot get its name at once; name a directory in it",
        )


def _order_recovery(data: Path, at: datetime | None) -> None:
    """Behind what ALTER SYSTEM wrote; settings of an earlier recovery would end this one at their moment."""
    settings = data / SETTINGS
    kept = [line for line in settings.read_text().splitlines() if not _OF_A_RECOVERY.match(line)]
    target = "" if at is None else f"recovery_target_time = '{at.isoformat()}'\n"
    settings.write_text("\n".join(kept) + _RECOVERY.format(wal=WAL, settings=SETTINGS, target=target))
    (data / "standby.signal").unlink(missing_ok=True)
    (data / "recovery.signal").touch()
