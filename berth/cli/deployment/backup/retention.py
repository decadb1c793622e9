"""Which backups and WAL segments are deleted. `choose` and `removable_segments` are pure; `apply_retention` deletes."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from berth.cli.deployment.backup.catalogue import Backup, Listed, list_backups
from berth.cli.deployment.backup.crash_points import CrashPoint
from berth.cli.deployment.backup.directory import DISCARDED, BackupDirectory
from berth.cli.deployment.backup.wal import Segment, segment_of
from berth.process.crash_points import reach
from berth.process.durable_directories import sync_directory


@dataclass(frozen=True, slots=True)
class Kept:
    """A backup stays while it is one of the `count` newest or not older than `days`."""

    count: int
    days: int


@dataclass(frozen=True, slots=True)
class Removed:
    """The deleted backups by name, and how many WAL segments were deleted."""

    backups: list[str]
    segments: int


def choose(listed: Sequence[Listed], kept: Kept, now: datetime) -> list[Backup]:
    """The backups to delete, of all in order, newest first.

    Never the newest one, nor the newest one that was restored and found right: without it no proven backup would be left.
    """
    proven = next((one.backup.name for one in listed if one.is_verified), None)
    oldest = now - timedelta(days=kept.days)
    return [
        one.backup
        for rank, one in enumerate(listed)
        if rank >= max(kept.count, 1) and one.backup.ended < oldest and one.backup.name != proven
    ]


def removable_segments(segments: Iterable[Segment], kept: Sequence[Backup]) -> set[Segment]:
    """The segments that no kept backup needs: those before the first segment of each. None if no backup is kept."""
    if not kept:
        return set()
    first = min(backup.first_segment for backup in kept)
    return {segment for segment in segments if segment.number < first}


def apply_retention(directory: BackupDirectory, kept: Kept) -> Removed:
    """Delete what `choose` and `removable_segments` say. The caller holds the locks. Raises `BackupProblem`, OSError.

    A backup loses its name first, so that a kill leaves none that looks complete.
    """
    listed = list_backups(directory)
    chosen = choose(listed, kept, datetime.now(UTC))
    for backup in reversed(chosen):
        discarded = directory.base / f"{DISCARDED}{backup.name}"
        (directory.base / backup.name).rename(discarded)
        sync_directory(directory.base)
        reach(CrashPoint.AFTER_DISCARD)
        shutil.rmtree(discarded)
    staying = [one.backup for one in listed if one.backup not in chosen]
    return Removed([backup.name for backup in chosen], _delete_segments(directory, staying))


def _delete_segments(directory: BackupDirectory, kept: Sequence[Backup]) -> int:
    if not kept:
        return 0
    files = {}
    for path in directory.wal.glob("*/*"):
        segment = segment_of(path.name, kept[0].segment_bytes)
        if segment is not None:
            files[path] = segment
    removable = removable_segments(files.values(), kept)
    gone = [path for path, segment in files.items() if segment in removable]
    for path in gone:
        path.unlink(missing_ok=True)
    return len(gone)
