"""`berth backup verify`: proves a backup by a restore into a scratch server, and records the result beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from psycopg import sql

from berth.cli.deployment.backup.catalogue import DATA, RESULT, Backup, find, list_backups
from berth.cli.deployment.backup.crash_points import CrashPoint
from berth.cli.deployment.backup.directory import RETENTION_LOCK, VERIFY_LOCK, BackupDirectory, of_system, write_whole
from berth.cli.deployment.backup.manifest import check_files, read_manifest
from berth.cli.deployment.backup.problems import BackupProblem
from berth.cli.deployment.backup.scratch import Scratch, clear_leftovers, scratch_server
from berth.cli.deployment.backup.wal import begins_record, name_of, reach_of, read_stored
from berth.cli.deployment.verify import RESCUE_SECONDS, as_data
from berth.cli.settings import Settings
from berth.process.crash_points import reach
from berth.process.json_objects import JsonObject
from orchestrator.verification import Bounds, run_checks

_TABLES = """
select c.relname from pg_class c
where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition order by 1
"""
_LAST_COMMIT = "select pg_last_xact_replay_timestamp(), pg_last_wal_replay_lsn() - '0/0'"


@dataclass(frozen=True, slots=True)
class Asked:
    """What to verify: which backup (None: the newest), up to when (None: all WAL), where and with which bounds."""

    name: str | None
    at: datetime | None
    database: str
    scratch: Path
    programs_dir: Path | None
    seconds_max: float


@dataclass(slots=True)
class Result:
    """What a restore proved. `restored_to`: the time of the last restored commit, None if no WAL held one."""

    backup: str
    verified_at: str
    ok: bool = False
    target: str | None = None
    restored_to: str | None = None
    wal_segments: int = 0
    seconds: float = 0.0
    rows: dict[str, int] = field(default_factory=dict)
    checks: list[JsonObject] = field(default_factory=list)
    code: str | None = None
    detail: str | None = None
    wal_gap: bool = False


def verify_backup(directory: BackupDirectory, asked: Asked, settings: Settings) -> Result:
    """Restore, check, record the result beside the backup and return it. The scratch server is gone afterwards.

    A restore that fails, or a promise that is violated, is a result. Raises `BackupProblem` if there is nothing to restore, if
    `at` lies outside of what is here, or the disk is full.
    """
    directory.system_identifier()
    with (
        directory.locked(VERIFY_LOCK, "another `berth backup verify` is running"),
        _place_locked(asked.scratch),
        directory.locked(RETENTION_LOCK, "retention is deleting", shared=True),
    ):
        try:
            clear_leftovers(asked.scratch)
            backup = find(directory, asked.name, asked.at)
            result = Result(
                backup.name, datetime.now(UTC).isoformat(), target=None if asked.at is None else asked.at.isoformat()
            )
            result.wal_gap = next(one.wal_gap for one in list_backups(directory) if one.backup == backup)
            _judge(directory, backup, asked, settings, result)
            reach(CrashPoint.BEFORE_RESULT)
            write_whole(directory.base / backup.name / RESULT, asdict(result))
        except OSError as error:
            raise of_system(error, directory.path) from error
    return result


@contextmanager
def _place_locked(scratch: Path) -> Iterator[None]:
    """Hold the lock of a place of scratch servers: two backup directories may name one, and its leftovers are ended."""
    try:
        # Its servers may run as another user, which must get through it.
        scratch.mkdir(mode=0o711, parents=True, exist_ok=True)
    except OSError as error:
        raise of_system(error, scratch) from error
    with BackupDirectory(scratch).locked(VERIFY_LOCK, "another `berth backup verify` restores"):
        yield


def _judge(directory: BackupDirectory, backup: Backup, asked: Asked, settings: Settings, result: Result) -> None:
    began, unread = datetime.now(UTC), None
    with scratch_server(asked.scratch, asked.programs_dir) as scratch:
        try:
            url = _restore(directory, backup, asked, scratch, result)
            reach(CrashPoint.AFTER_RESTORE)
            ended = _examine(url, backup, settings, result)
            unread = None if asked.at is not None or result.wal_gap else _unread(scratch.wal, backup, ended)
        except BackupProblem as problem:
            if problem.code not in ("restore_failed", "backup_damaged"):
                raise
            result.code, result.detail = problem.code, str(problem)
        except psycopg.Error as error:
            # A page that cannot be read ends a query, not the server.
            result.code, result.detail = "restore_failed", f"the restored server refused: {str(error).splitlines()[0]}"
    result.seconds = round((datetime.now(UTC) - began).total_seconds(), 3)
    violated = [check["promise"] for check in result.checks if not check["kept"]]
    if violated:
        result.code, result.detail = "backup_violates", f"violated: {', '.join(violated)}"
    elif result.wal_gap and result.code is None:
        result.code = "wal_gap"
        result.detail = (
            "streamed WAL behind this backup has a gap, so that it restores to the moment before it; take a new backup"
        )
    elif unread is not None and result.code is None:
        result.code, result.detail = "wal_unreadable", unread
    result.ok = result.code is None


def _restore(directory: BackupDirectory, backup: Backup, asked: Asked, scratch: Scratch, result: Result) -> str:
    data = directory.base / backup.name / DATA
    check_files(data, read_manifest(data))
    result.wal_segments = scratch.copy(data, directory.wal, backup.first_segment, backup.segment_bytes)
    scratch.start(asked.at)
    return scratch.wait_restored(asked.database, asked.seconds_max)


def _examine(url: str, backup: Backup, settings: Settings, result: Result) -> int:
    """Count the rows, and check the promises as of the restored moment, since which no process has run.

    Returns where the recovery ended, in bytes.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        last_commit, ended = connection.execute(_LAST_COMMIT).fetchone() or (None, None)
        result.restored_to = last_commit and last_commit.astimezone(UTC).isoformat()
        for (table,) in connection.execute(_TABLES).fetchall():
            count = connection.execute(sql.SQL("select count(*) from {}").format(sql.Identifier(table))).fetchone()
            assert count is not None
            result.rows[table] = int(count[0])
    if "alembic_version" not in result.rows:
        raise BackupProblem(
            "restore_failed", "the restored database has no schema of Berth; name the database with --database"
        )
    # No process has acted since that moment, so every deadline is given the time that has passed.
    since = last_commit or datetime.fromisoformat(backup.started_at)
    age_seconds = max((datetime.now(UTC) - since).total_seconds(), 0.0)
    live = Bounds()
    bounds = Bounds(
        operation_retention_seconds=settings.operation_retention_seconds,
        outbox_seconds=live.outbox_seconds + age_seconds,
        overdue_seconds=settings.sweep_grace_seconds + RESCUE_SECONDS + age_seconds,
        retirement_seconds=live.retirement_seconds + age_seconds,
    )
    result.checks = [as_data(verdict) for verdict in run_checks(url, bounds)]
    return int(ended or 0)


def _unread(wal: Path, backup: Backup, ended: int) -> str | None:
    """Why the recovery did not read all WAL that was given to it; None if it did. Recovery ends without an error at damage."""
    size = backup.segment_bytes
    last = reach_of(read_stored(wal, size, "*"), backup.timeline, backup.first_segment).last
    if last is None:
        return None
    timeline, number = last
    begin = number * size
    name = name_of(timeline, number, size)
    if ended > begin or (ended > begin - size and not begins_record(wal / name)):
        return None
    return (
        f"recovery ended {begin - ended} bytes before the last stored segment {name}: streamed WAL is damaged there,"
        " and what follows cannot be restored; take a new backup and check the disk"
    )
