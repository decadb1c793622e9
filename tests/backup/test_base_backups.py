"""A base backup is complete or not there; every failure is one sentence with a stable code and leaves what was there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import psycopg
import pytest

from berth.cli.deployment.backup.base_backup import Patience, Progress, run_backup
from berth.cli.deployment.backup.catalogue import list_backups
from berth.cli.deployment.backup.crash_points import CrashPoint
from berth.cli.deployment.backup.directory import RUN_LOCK, BackupDirectory
from berth.cli.deployment.backup.manifest import check_files, read_manifest
from berth.cli.deployment.backup.problems import BackupProblem
from berth.cli.deployment.backup.retention import Kept
from berth.local.servers import free_port
from migrations.roles import BACKUP_ROLE, Role
from tests.backup.conftest import PASSWORD
from tests.backup.killing import killed
from tests.backup.stage import KEEP, ROOT, Stage
from tests.support.waiting import wait_for


def refused(stage: Stage, code: str) -> str:
    """The sentence of a run that is refused with this code."""
    with pytest.raises(BackupProblem) as raised:
        stage.back_up()
    assert raised.value.code == code, str(raised.value)
    assert PASSWORD not in str(raised.value)
    return str(raised.value)


def names(directory: BackupDirectory) -> list[str]:
    """Everything below base, finished or not."""
    return sorted(path.name for path in directory.base.iterdir())


def test_a_backup_is_described_and_only_its_owner_reads_it(stage: Stage) -> None:
    made = stage.back_up().backup
    (listed,) = list_backups(stage.directory)
    assert listed.backup == made
    assert (listed.result, listed.wal_gap, names(stage.directory)) == (None, False, [made.name])
    assert made.start < made.end <= stage.flushed()
    for path in (stage.directory.path, *(stage.directory.path / name for name in ("base", "wal", "keys"))):
        assert path.stat().st_mode & 0o777 == 0o700
    check_files(stage.directory.base / made.name / "data", read_manifest(stage.directory.base / made.name / "data"))
    (stage.directory.base / made.name / "verified.json").write_text("{}")
    assert list_backups(stage.directory)[0].result is None, "it says nothing"


def test_a_server_that_is_not_there(stage: Stage) -> None:
    stage.back_up()
    before = names(stage.directory)
    nowhere = replace(stage, url=f"postgresql://{BACKUP_ROLE}:{PASSWORD}@127.0.0.1:{free_port()}/postgres")
    assert "BERTH_BACKUP_DATABASE_URL" in refused(nowhere, "backup_server_unreachable")
    assert names(stage.directory) == before


def test_a_wrong_password_and_a_role_without_replication(stage: Stage) -> None:
    refused(replace(stage, url=stage.url.replace(PASSWORD, "another")), "backup_not_permitted")
    with psycopg.connect(stage.server.url(), autocommit=True) as connection:
        connection.execute("create role no_replication login password 'x'")
    try:
        other = stage.url.replace(f"{BACKUP_ROLE}:{PASSWORD}", "no_replication:x")
        refused(replace(stage, url=other), "backup_not_permitted")
    finally:
        with psycopg.connect(stage.server.url(), autocommit=True) as connection:
            connection.execute("drop role no_replication")
    assert not stage.directory.path.exists()


def test_a_directory_with_other_files_is_left_alone(stage: Stage) -> None:
    stage.directory.path.mkdir()
    (stage.directory.path / "letters").write_text("mine")
    assert "letters" in refused(stage, "not_backup_directory")
    assert [path.name for path in stage.directory.path.iterdir()] == ["letters"]
    with pytest.raises(BackupProblem, match="not a backup directory"):
        list_backups(stage.directory)


def test_the_directory_of_another_server_is_refused(stage: Stage) -> None:
    stage.directory.claim_for("7000000000000000001")
    assert "7000000000000000001" in refused(stage, "backup_other_system")
    assert names(stage.directory) == []


@pytest.mark.full
def test_of_two_runs_at_once_one_is_refused_and_one_completes(stage: Stage) -> None:
    done: list[str] = []

    def run() -> None:
        try:
            done.append(run_backup(stage.directory, stage.url, None, KEEP).backup.name)
        except BackupProblem as problem:
            done.append(problem.code)

    runs = [threading.Thread(target=run) for _ in range(2)]
    for one in runs:
        one.start()
    for one in runs:
        one.join()
    assert "backup_in_progress" in done
    assert [listed.backup.name for listed in list_backups(stage.directory)] == [name for name in done if name[0] == "2"]


def test_a_run_waits_for_none_that_holds_the_lock(stage: Stage) -> None:
    stage.back_up()
    with stage.directory.locked(RUN_LOCK, "a test"):
        refused(stage, "backup_in_progress")
    assert stage.back_up().removed is not None


@pytest.mark.full
@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.AFTER_COPY,
        *(pytest.param(point, marks=pytest.mark.full) for point in (CrashPoint.BEFORE_RENAME, CrashPoint.AFTER_RENAME)),
    ],
)
def test_a_killed_run_leaves_no_half_backup(stage: Stage, point: CrashPoint) -> None:
    kept = stage.back_up().backup
    killed(stage, point, "run")
    complete = [listed.backup.name for listed in list_backups(stage.directory)]
    assert kept.name in complete
    assert len(complete) == (2 if point is CrashPoint.AFTER_RENAME else 1)
    for name in complete:
        data = stage.directory.base / name / "data"
        check_files(data, read_manifest(data))
    later = stage.back_up().backup
    assert names(stage.directory) == sorted([*complete, later.name]), "what the killed run left is gone"


@pytest.mark.full
def test_a_killed_deletion_leaves_no_half_backup(stage: Stage) -> None:
    made = [stage.back_up().backup.name for _ in range(2)]
    killed(stage, CrashPoint.AFTER_DISCARD, "run", BERTH_BACKUP_KEEP_COUNT="1", BERTH_BACKUP_KEEP_DAYS="0")
    left = [listed.backup.name for listed in list_backups(stage.directory)]
    assert made[0] not in left
    assert len(left) == 2
    stage.back_up(Kept(1, 0))
    (only,) = list_backups(stage.directory)
    assert names(stage.directory) == [only.backup.name]


@pytest.mark.full
def test_a_server_that_freezes_during_the_copy_ends_the_run(stage: Stage) -> None:
    kept = stage.back_up().backup.name
    freeze = Patience(stalled_seconds=5.0, check_seconds=0.1)
    with (
        stopped_checkpointer(stage),
        pytest.raises(BackupProblem, match="the copy was given up") as raised,
        frozen_once(stage, lambda: copies_below(os.getpid()) != []),
    ):
        run_backup(stage.directory, stage.url, None, KEEP, freeze)
    assert raised.value.code == "backup_server_unreachable"
    assert names(stage.directory) == [kept]


@pytest.mark.full
def test_a_copy_that_grows_or_whose_server_answers_is_not_given_up(stage: Stage, tmp_path: Path) -> None:
    progress = Progress(stage.url, tmp_path, stalled_seconds=5.0)
    progress.require()
    with frozen_once(stage, lambda: True):
        (tmp_path / "copied").write_text("more")
        progress.require()
        with pytest.raises(BackupProblem):
            progress.require()
    progress.require()


@pytest.mark.full
def test_the_copy_ends_with_the_run_that_is_killed(stage: Stage) -> None:
    """An orphan would write into the directory that the next run clears."""
    with stopped_checkpointer(stage):
        run = subprocess.Popen(
            [sys.executable, "-m", "berth.cli", "backup", "run"],
            env=stage.variables(),
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
        )
        wait_for(lambda: copies_below(run.pid), "the copy runs")
        copies = copies_below(run.pid)
        run.send_signal(signal.SIGKILL)
        run.wait()
        wait_for(lambda: not any(map(runs, copies)), "the copy has ended")
    stage.back_up()
    assert len(names(stage.directory)) == 1


@contextmanager
def stopped_checkpointer(stage: Stage) -> Iterator[None]:
    """While a checkpoint cannot end, a backup does not begin: the copy waits."""
    with psycopg.connect(stage.server.url()) as connection:
        (checkpointer,) = connection.execute(
            "select pid from pg_stat_activity where backend_type = 'checkpointer'"
        ).fetchone() or (0,)
    os.kill(checkpointer, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(checkpointer, signal.SIGCONT)


@contextmanager
def frozen_once(stage: Stage, ready: Callable[[], bool]) -> Iterator[None]:
    """Stop the server's listening process once `ready`, until the end of the context: connections open, and get no answer."""
    postmaster = int((stage.server.directory / "postmaster.pid").read_text().splitlines()[0])

    def freeze() -> None:
        wait_for(ready, "the moment to freeze")
        os.kill(postmaster, signal.SIGSTOP)

    freezing = threading.Thread(target=freeze)
    freezing.start()
    if ready():
        freezing.join()
    try:
        yield
    finally:
        freezing.join()
        os.kill(postmaster, signal.SIGCONT)


def copies_below(pid: int) -> list[psutil.Process]:
    """The pg_basebackup processes that a process has started."""
    try:
        children = psutil.Process(pid).children(recursive=True)
        return [child for child in children if child.name() == "pg_basebackup"]
    except psutil.NoSuchProcess:
        return []


def runs(process: psutil.Process) -> bool:
    """Whether it has not ended."""
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@contextmanager
def small_file_system(place: Path, mebibytes: int) -> Iterator[Path]:
    """A file system of this size; skips the test where mounting is not permitted."""
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(place)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a file system is not permitted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.full
def test_a_full_disk_is_named_and_leaves_the_backups_that_are_there(stage: Stage, data_directory: Path) -> None:
    size = stage.back_up().backup.bytes >> 20
    with small_file_system(data_directory / "small", size * 3 // 2) as small:
        full = replace(stage, directory=BackupDirectory(small / "backups"))
        kept = full.back_up().backup
        assert "BERTH_BACKUP_KEEP_COUNT" in refused(full, "backup_disk_full")
        assert names(full.directory) == [kept.name], "the unfinished one is gone at once"
        data = full.directory.base / kept.name / "data"
        check_files(data, read_manifest(data))


def test_the_role_reads_no_database(stage: Stage) -> None:
    with psycopg.connect(stage.server.url(), autocommit=True) as connection:
        flags = (
            "select rolreplication, rolsuper, rolcreatedb, rolcreaterole, rolbypassrls from pg_roles where rolname = %s"
        )
        assert connection.execute(flags, (BACKUP_ROLE,)).fetchone() == (True, False, False, False, False)
    with psycopg.connect(stage.url.replace("/postgres", "/berth"), autocommit=True) as connection:
        tables = connection.execute(
            "select count(*) from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v', 'S')"
            " and has_table_privilege(oid, 'select')"
        ).fetchone()
        assert tables == (0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("select from tenants")
    assert BACKUP_ROLE not in tuple(Role)
