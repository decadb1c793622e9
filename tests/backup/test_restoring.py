"""`berth backup restore` makes a data directory that PostgreSQL recovers to the moment, whole or not at all."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from berth.cli.deployment.backup.crash_points import CrashPoint
from berth.cli.deployment.backup.problems import BackupProblem
from berth.cli.deployment.backup.restoring import SETTINGS, WAL, Restored, restore_backup
from tests.backup.killing import killed
from tests.backup.recovering import owner_of, recovered
from tests.backup.stage import Stage
from tests.support.waiting import wait_for


def restored(stage: Stage, data: Path, at: datetime | None = None, name: str | None = None) -> Restored:
    """The command's work, for the user of this machine's servers."""
    return restore_backup(stage.directory, data, at, name, owner_of(stage))


def test_postgresql_recovers_to_the_moment_on_a_new_timeline(stage: Stage, place: Path) -> None:
    made = stage.back_up().backup
    with stage.streaming():
        before = [stage.mark() for _ in range(3)]
        later = [stage.mark() for _ in range(2)]
        stage.switch_wal()
        stage.wait_streamed()
    kept = stage.marks() - len(later)
    done = restored(stage, place / "data", before[-1])
    assert (done.backup, done.target, done.wal_gap) == (made.name, before[-1].isoformat(), False)
    assert done.wal_segments >= 1
    with recovered(stage, place / "data") as connection:
        assert connection.execute("select count(*) from markers").fetchone() == (kept,)
        assert connection.execute("select max(at) <= %s from markers", (before[-1],)).fetchone() == (True,)
        assert connection.execute("select timeline_id > 1 from pg_control_checkpoint()").fetchone() == (True,)
        connection.execute("insert into markers default values")
        wait_for(lambda: not (place / "data" / WAL).exists(), "the end of the recovery deletes its WAL")
        assert "recovery" not in (place / "data" / SETTINGS).read_text(), "a copy of it recovers as any other"
    assert (place / "data").stat().st_mode & 0o777 == 0o700
    again = place / "again"
    restored(stage, again)
    with recovered(stage, again) as connection:
        assert connection.execute("select count(*) from markers").fetchone() == (kept + len(later),), "all WAL"


@pytest.mark.full
def test_what_an_earlier_restore_left_in_the_backup_ends_no_recovery(stage: Stage, place: Path) -> None:
    with psycopg.connect(stage.server.url(), autocommit=True) as connection:
        connection.execute("alter system set work_mem = '7MB'")
        moment = sql.Literal(datetime.now(UTC).isoformat())
        connection.execute(sql.SQL("alter system set recovery_target_time = {}").format(moment))
    (stage.server.directory / WAL).mkdir()
    try:
        made = stage.back_up().backup
        with stage.streaming():
            for _ in range(5):
                stage.mark()
            stage.switch_wal()
            stage.wait_streamed()
    finally:
        (stage.server.directory / WAL).rmdir()
        with psycopg.connect(stage.server.url(), autocommit=True) as connection:
            connection.execute("alter system reset all")
    assert (stage.directory.base / made.name / "data" / WAL).is_dir(), "copied as any folder"
    restored(stage, place / "data")
    with recovered(stage, place / "data") as connection:
        assert connection.execute("select count(*) from markers").fetchone() == (stage.marks(),), "all WAL"
        assert connection.execute("show work_mem").fetchone() == ("7MB",), "other settings stay"


def test_what_cannot_be_restored_changes_nothing(stage: Stage, place: Path) -> None:
    def refused(data: Path, at: datetime | None = None, name: str | None = None) -> str:
        with pytest.raises(BackupProblem) as problem:
            restored(stage, data, at, name)
        return problem.value.code

    assert refused(place / "data") == "not_backup_directory"
    made = stage.back_up().backup
    full = place / "full"
    full.mkdir()
    (full / "PG_VERSION").write_text("18")
    assert refused(full) == "data_directory_in_use"
    assert [path.name for path in full.iterdir()] == ["PG_VERSION"]
    assert refused(full / "PG_VERSION") == "data_directory_in_use"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "is_mount", lambda path: path == place / "mounted")
        assert refused(place / "mounted") == "data_directory_in_use"
    assert refused(place / "data", name="20200101T000000Z") == "backup_not_found"
    assert refused(place / "data", at=datetime.now(UTC) - timedelta(days=1)) == "target_before_backup"
    damaged = stage.directory.base / made.name / "data" / "PG_VERSION"
    content = damaged.read_bytes()
    damaged.write_bytes(b"19\n")
    assert refused(place / "data") == "backup_damaged"
    damaged.write_bytes(content)
    with pytest.raises(BackupProblem) as unknown:
        restore_backup(stage.directory, place / "data", None, None, "no-such-user")
    assert unknown.value.code == "owner_missing"
    if os.geteuid() == 0:
        with pytest.raises(BackupProblem) as root:
            restore_backup(stage.directory, place / "data", None, None, None)
        assert root.value.code == "owner_missing"
    assert sorted(path.name for path in place.iterdir()) == ["full"]


def test_of_two_at_once_one_is_refused(stage: Stage, place: Path) -> None:
    stage.back_up()
    with stage.directory.locked("restore.lock", "another"), pytest.raises(BackupProblem) as problem:
        restored(stage, place / "data")
    assert problem.value.code == "backup_in_progress"
    assert list(place.iterdir()) == []


def test_a_killed_restore_leaves_no_data_directory_and_the_next_one_makes_it(stage: Stage, place: Path) -> None:
    stage.back_up()
    data, owner = place / "data", owner_of(stage)
    killed(
        stage,
        CrashPoint.BEFORE_RESTORED,
        "restore",
        "--data",
        str(data),
        *([] if owner is None else ["--owner", owner]),
    )
    assert not data.exists()
    assert len(list(place.iterdir())) == 1
    restored(stage, data)
    assert [path.name for path in place.iterdir()] == ["data"]
    assert (data / WAL).is_dir()
