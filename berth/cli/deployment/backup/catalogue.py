"""The base backups in a backup directory, each with its description and the result of its last verification."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from berth.cli.deployment.backup.directory import BackupDirectory, read_json, write_whole
from berth.cli.deployment.backup.problems import BackupProblem
from berth.cli.deployment.backup.wal import reach_of, read_stored
from berth.process.json_objects import JsonObject

DESCRIPTION, RESULT, DATA = "backup.json", "verified.json", "data"


@dataclass(frozen=True, slots=True)
class Backup:
    """A complete base backup. Times are this machine's; `start` and `end` are positions in bytes."""

    name: str
    started_at: str
    ended_at: str
    timeline: int
    start: int
    end: int
    bytes: int
    segment_bytes: int

    @property
    def order(self) -> tuple[int, int]:
        """Newer backups are greater, whatever the clock did."""
        return self.timeline, self.start

    @property
    def first_segment(self) -> int:
        """The number of the first WAL segment that its restore needs."""
        return self.start // self.segment_bytes

    @property
    def ended(self) -> datetime:
        """When it was complete."""
        return datetime.fromisoformat(self.ended_at)


@dataclass(frozen=True, slots=True)
class Listed:
    """A backup with the last result of its verification, and whether the streamed WAL behind it has a gap."""

    backup: Backup
    result: JsonObject | None
    wal_gap: bool

    @property
    def is_verified(self) -> bool:
        """Whether its last verification found everything right."""
        return self.result is not None and self.result.get("ok") is True


def describe(folder: Path, backup: Backup) -> None:
    """Write the description of a backup durably."""
    write_whole(folder / DESCRIPTION, asdict(backup))


def list_backups(directory: BackupDirectory) -> list[Listed]:
    """The complete backups, newest first. Raises `BackupProblem` if this is not a backup directory, or one is damaged."""
    directory.system_identifier()
    backups = []
    try:
        folders = [folder for folder in directory.base.iterdir() if not folder.name.startswith(".")]
    except FileNotFoundError:
        return []
    for folder in folders:
        try:
            backups.append((_read(folder), _result(folder)))
        except BackupProblem:
            if folder.exists():
                raise
            # Retention has discarded it meanwhile.
    stored = {size: read_stored(directory.wal, size) for size in {backup.segment_bytes for backup, _ in backups}}
    listed = [
        Listed(backup, result, reach_of(stored[backup.segment_bytes], backup.timeline, backup.first_segment).gap)
        for backup, result in backups
    ]
    return sorted(listed, key=lambda one: one.backup.order, reverse=True)


def _read(folder: Path) -> Backup:
    found = read_json(folder / DESCRIPTION)
    try:
        return Backup(**(found or {}))
    except TypeError as error:
        raise BackupProblem(
            "backup_damaged",
            f"{folder / DESCRIPTION} is missing or damaged; move {folder} away if it cannot be restored",
        ) from error


def find(directory: BackupDirectory, name: str | None, at: datetime | None) -> Backup:
    """The named backup, or the newest that was complete at `at`. Raises `BackupProblem`.

    A backup that was complete later is refused: PostgreSQL would restore it to its end, without a word about the moment.
    """
    backups = [listed.backup for listed in list_backups(directory)]
    if not backups:
        raise BackupProblem("no_backup", f"there is no complete backup in {directory.path}; run `berth backup run`")
    named = [backup for backup in backups if name in (None, backup.name)]
    if not named:
        raise BackupProblem(
            "backup_not_found", f"there is no backup {name} in {directory.path}; `berth backup list` shows them"
        )
    for backup in named:
        if at is None or backup.ended <= at:
            return backup
    raise BackupProblem(
        "target_before_backup",
        f"{named[-1].name} was complete at {named[-1].ended_at}, after {at}; name a later moment",
    )


def newest(listed: Iterable[Listed]) -> Listed | None:
    """The newest of these, which are in order."""
    return next(iter(listed), None)


def _result(folder: Path) -> JsonObject | None:
    """Of the last verification; None if there is none that says when it was."""
    found = read_json(folder / RESULT)
    return found if found is not None and isinstance(found.get("verified_at"), str) else None
