"""A restore proves a backup: damage, gaps and violated promises are results, and no scratch server is left behind."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta

import psutil
import psycopg
import pytest

from berth.cli.deployment.backup.base_backup import run_backup
from berth.cli.deployment.backup.catalogue import list_backups
from berth.cli.deployment.backup.crash_points import CrashPoint
from berth.cli.deployment.backup.directory import VERIFY_LOCK, BackupDirectory
from berth.cli.deployment.backup.findings import backup_findings
from berth.cli.deployment.backup.problems import BackupProblem
from berth.cli.deployment.backup.scratch import scratch_server
from berth.cli.deployment.backup.verifying import Asked, verify_backup
from berth.cli.settings import Settings
from tests.backup.killing import killed
from tests.backup.stage import KEEP, Stage


def refused(stage: Stage, code: str, at: datetime | None = None, name: str | None = None) -> str:
    """A verification is refused with this code, and records nothing."""
    before = [one.result for one in list_backups(stage.directory)] if stage.directory.path.exists() else []
    with pytest.raises(BackupProblem) as raised:
        stage.verify(at, name)
    assert raised.value.code == code, str(raised.value)
    if before:
        assert [one.result for one in list_backups(stage.directory)] == before
        assert_nothing_left(stage)
    return str(raised.value)


def assert_nothing_left(stage: Stage) -> None:
    """No scratch server runs, and neither its files nor its sockets are there."""
    assert not list((stage.directory.path / "scratch").glob("berth-scratch-*"))
    running = [process.cmdline() for process in psutil.process_iter() if process.status() != psutil.STATUS_ZOMBIE]
    assert not [line for line in running if any(str(stage.directory.path / "scratch") in part for part in line)]


def test_nothing_to_verify(stage: Stage) -> None:
    assert refused(stage, "not_backup_directory")
    stage.directory.claim_for("7000000000000000001")
    assert refused(stage, "no_backup")


@pytest.mark.full
def test_moments_outside_of_what_is_there(stage: Stage) -> None:
    with stage.streaming():
        made = stage.back_up().backup
        stage.mark()
        stage.wait_streamed()
        assert refused(stage, "target_before_backup", made.ended - timedelta(minutes=1))
        assert refused(stage, "target_before_backup", made.ended - timedelta(minutes=1), made.name)
        assert refused(stage, "target_not_reached", datetime.now(UTC) + timedelta(hours=1))
        assert refused(stage, "backup_not_found", name="another")
        assert stage.verify(name=made.name).ok


def test_a_changed_byte_is_found(stage: Stage) -> None:
    made = stage.back_up().backup
    files = (path for path in (stage.directory.base / made.name / "data" / "base").rglob("*") if path.is_file())
    changed = max(files, key=lambda path: path.stat().st_size)
    content = bytearray(changed.read_bytes())
    content[len(content) // 2] ^= 1
    changed.write_bytes(content)
    result = stage.verify()
    assert (result.ok, result.code) == (False, "backup_damaged")
    assert result.detail is not None
    assert changed.name in result.detail
    (listed,) = list_backups(stage.directory)
    assert listed.result is not None
    assert (listed.is_verified, listed.result["code"]) == (False, "backup_damaged")
    assert_nothing_left(stage)


@pytest.mark.parametrize(
    "damage",
    [
        "missing",
        pytest.param("added", marks=pytest.mark.full),
        "manifest",
        pytest.param("shorter", marks=pytest.mark.full),
        "wal",
    ],
)
def test_every_other_damage_is_found(stage: Stage, damage: str) -> None:
    data = stage.directory.base / stage.back_up().backup.name / "data"
    if damage == "missing":
        (data / "global" / "pg_control").unlink()
    elif damage == "added":
        (data / "base" / "added").write_text("x")
    elif damage == "wal":
        shutil.rmtree(data / "pg_wal")
    elif damage == "manifest":
        text = (data / "backup_manifest").read_text()
        (data / "backup_manifest").write_text(text.replace('"Size": ', '"Size":  ', 1))
    else:
        os.truncate(data / "PG_VERSION", 1)
    assert stage.verify().code == "backup_damaged"


@pytest.mark.full
def test_missing_wal_is_found(stage: Stage) -> None:
    with stage.streaming():
        stage.back_up()
        for _ in range(3):
            stage.mark()
            stage.switch_wal()
        stage.wait_streamed()
    second = sorted((stage.directory.wal / "000001").glob("0*"))[-3]
    second.unlink()
    result = stage.verify()
    assert (result.ok, result.code, result.wal_gap) == (False, "wal_gap", True)
    assert result.rows["markers"] < 3


@pytest.mark.full
@pytest.mark.parametrize("place", ["middle", pytest.param("last", marks=pytest.mark.full)])
def test_damaged_wal_is_found_although_the_recovery_ends_without_an_error(stage: Stage, place: str) -> None:
    """PostgreSQL takes a record that it cannot read for the end of the WAL."""
    with stage.streaming():
        stage.back_up()
        for _ in range(4):
            stage.mark()
            stage.switch_wal()
        stage.mark()
        stage.wait_streamed()
    assert stage.verify().ok
    segments = sorted((stage.directory.wal / "000001").glob("0*"))
    damaged = segments[-4 if place == "middle" else -1]
    content = bytearray(damaged.read_bytes())
    content[60:400] = bytes(byte ^ 0xFF for byte in content[60:400])
    damaged.write_bytes(content)
    result = stage.verify()
    assert result.rows["markers"] == (1 if place == "middle" else 4)
    assert (result.ok, result.code) == (False, "wal_unreadable")
    findings = {one.subject: one for one in backup_findings(stage.directory.path, stage.directory.path)}
    assert findings["backup proof"].verdict == "bad"
    assert segments[-1].name.removesuffix(".partial") in findings["backup proof"].detail


@pytest.mark.full
def test_the_unfinished_segment_is_used_once_and_the_finished_one_instead(stage: Stage) -> None:
    with stage.streaming():
        stage.back_up()
        stage.mark()
        stage.wait_streamed()
    (partial,) = (stage.directory.wal / "000001").glob("*.partial")
    result = stage.verify()
    assert result.rows["markers"] == 1, "the last segment is restored although its name says .partial"
    run = stage.directory.wal / "000002"
    run.mkdir()
    (run / partial.name.removesuffix(".partial")).write_bytes(partial.read_bytes())
    partial.write_bytes(b"")
    assert stage.verify().rows["markers"] == 1


@pytest.mark.full
def test_a_violated_promise_is_a_result(stage: Stage) -> None:
    with psycopg.connect(stage.server.url(), autocommit=True) as connection:
        before = connection.execute("select version from log_head").fetchone()
        connection.execute("alter table log_head disable trigger all")
        connection.execute("update log_head set version = version + 5")
        connection.execute("alter table log_head enable trigger all")
    try:
        stage.back_up()
    finally:
        with psycopg.connect(stage.server.url(), autocommit=True) as connection:
            connection.execute("alter table log_head disable trigger all")
            connection.execute("update log_head set version = %s", before)
            connection.execute("alter table log_head enable trigger all")
    result = stage.verify()
    assert (result.ok, result.code) == (False, "backup_violates")
    assert result.detail is not None
    assert "P3" in result.detail


@pytest.mark.full
def test_another_database_is_no_proof(stage: Stage) -> None:
    stage.back_up()
    for name in ("postgres", "absent"):
        asked = Asked(None, None, name, stage.directory.path / "scratch", None, 60.0)
        result = verify_backup(stage.directory, asked, Settings())
        assert (result.ok, result.code) == (False, "restore_failed")
    assert_nothing_left(stage)


@pytest.mark.full
@pytest.mark.parametrize(
    "point", [CrashPoint.AFTER_RESTORE, pytest.param(CrashPoint.BEFORE_RESULT, marks=pytest.mark.full)]
)
def test_a_killed_verification_leaves_no_server_and_its_files_go(stage: Stage, point: CrashPoint) -> None:
    stage.back_up()
    killed(stage, point, "verify", "--database", "berth")
    (listed,) = list_backups(stage.directory)
    assert listed.result is None
    assert stage.verify().ok
    assert_nothing_left(stage)


@pytest.mark.full
def test_the_scratch_server_is_closed_to_everything(stage: Stage) -> None:
    """It listens on no address, archives nothing and connects to nothing, whatever the original does."""
    with psycopg.connect(stage.server.url(), autocommit=True) as connection:
        connection.execute("alter system set archive_command = 'touch /tmp/archived-by-scratch'")
        connection.execute("alter system set listen_addresses = '*'")
        connection.execute("alter system set work_mem = '7MB'")
    try:
        made = stage.back_up().backup
    finally:
        with psycopg.connect(stage.server.url(), autocommit=True) as connection:
            connection.execute("alter system reset all")
    with scratch_server(stage.directory.path / "scratch", None) as scratch:
        scratch.copy(
            stage.directory.base / made.name / "data", stage.directory.wal, made.first_segment, made.segment_bytes
        )
        scratch.start(None)
        with psycopg.connect(scratch.wait_restored("berth", 60.0), autocommit=True) as connection:
            names = (
                "archive_mode",
                "archive_command",
                "listen_addresses",
                "max_wal_senders",
                "primary_conninfo",
                "work_mem",
            )
            shown = {name: connection.execute(f"show {name}".encode()).fetchone() for name in names}
        assert shown["listen_addresses"] == shown["primary_conninfo"] == ("",)
        assert (shown["archive_mode"], shown["max_wal_senders"]) == (("off",), ("0",))
        assert shown["work_mem"] == ("4MB",), "of the server, not of the original"
        assert shown["archive_command"] in (("(disabled)",), ("",))
        assert scratch.sockets.stat().st_mode & 0o777 == 0o700
    assert_nothing_left(stage)


@pytest.mark.full
def test_of_two_verifications_one_is_refused(stage: Stage) -> None:
    stage.back_up()
    with stage.directory.locked(VERIFY_LOCK, "a test"):
        assert refused(stage, "backup_in_progress")
    assert stage.verify().ok
    with BackupDirectory(stage.directory.path / "scratch").locked(VERIFY_LOCK, "a verification of another directory"):
        assert "scratch" in refused(stage, "backup_in_progress")
    assert run_backup(stage.directory, stage.url, None, KEEP).removed is not None
