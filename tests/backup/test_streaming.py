"""The WAL stream: started again after every kind of end, its lag measured, its gaps named, and the server's disk bounded."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.cli.deployment.backup.catalogue import list_backups
from berth.cli.deployment.backup.directory import BackupDirectory
from berth.cli.deployment.backup.stream_status import Lag, read_status
from berth.local.servers import LocalPostgres, free_port
from tests.backup.conftest import PASSWORD
from tests.backup.stage import ROOT, Stage, running_server
from tests.support.waiting import wait_for


def receivers(pid: int) -> list[psutil.Process]:
    """The pg_receivewal processes of a stream."""
    try:
        return [child for child in psutil.Process(pid).children(recursive=True) if child.name() == "pg_receivewal"]
    except psutil.NoSuchProcess:
        return []


def answer(port: int, path: str) -> str:
    """What the health port answers; empty while it does not listen."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
            return str(reply.read().decode())
    except OSError:
        return ""


@pytest.mark.full
def test_a_receiver_that_dies_is_started_again_and_nothing_is_missing(stage: Stage) -> None:
    with stage.streaming() as stream:
        stage.back_up()
        stage.mark()
        stage.wait_streamed()
        (receiver,) = receivers(stream.pid)
        receiver.kill()
        wait_for(lambda: any(one.pid != receiver.pid for one in receivers(stream.pid)), "another receiver")
        stage.switch_wal()
        stage.mark()
        stage.wait_streamed()
        assert stage.verify().rows["markers"] == 2
        wait_for(
            lambda: (status := stage.status()) is not None and status.restarts >= 1 and status.streaming, "a status"
        )
    (listed,) = list_backups(stage.directory)
    assert not listed.wal_gap


@pytest.mark.full
def test_the_receiver_ends_with_a_killed_stream_which_goes_on_where_it_was(stage: Stage) -> None:
    with stage.streaming() as stream:
        stage.back_up()
        stage.mark()
        stage.wait_streamed()
        (receiver,) = receivers(stream.pid)
        stream.kill()
        stream.wait()
    wait_for(lambda: not receiver.is_running() or receiver.status() == psutil.STATUS_ZOMBIE, "the receiver has ended")
    stage.mark()
    stage.switch_wal()
    with stage.streaming():
        stage.mark()
        stage.wait_streamed()
        assert stage.verify().rows["markers"] == 3


@pytest.mark.full
def test_a_segment_torn_by_a_full_disk_stops_neither_the_restore_nor_the_next_start(stage: Stage) -> None:
    with stage.streaming():
        stage.back_up()
        stage.mark()
        stage.switch_wal()
        stage.wait_streamed()
    last = max((stage.directory.wal / "000001").iterdir())
    torn = last if last.suffix else last.with_name(f"{int(last.name, 16) + 1:024X}.partial")
    torn.write_bytes(bytes(1 << 20))
    result = stage.verify()
    assert (result.ok, result.rows["markers"]) == (True, 1)
    stage.mark()
    with stage.streaming():
        stage.wait_streamed()
        result = stage.verify()
    assert (result.ok, result.rows["markers"], result.wal_gap) == (True, 2, False)


@pytest.mark.full
def test_two_streams_into_one_directory(stage: Stage) -> None:
    with stage.streaming() as first:
        stage.wait_streamed()
        command = [sys.executable, "-m", "berth.cli", "backup", "stream", "--output", "json"]
        second = subprocess.run(command, env=stage.variables(), cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert second.returncode == 1
        assert json.loads(second.stdout)["error"]["code"] == "backup_in_progress"
        assert first.poll() is None


def test_health_and_metrics(stage: Stage) -> None:
    port = free_port()
    with stage.streaming(BERTH_METRICS_PORT=str(port)):
        wait_for(lambda: '"ok": true' in answer(port, "/ok"), "the stream is healthy")
        stage.mark()
        stage.wait_streamed()
        wait_for(lambda: re.search(r"^berth_backup_stream_lag_bytes 0\.0$", answer(port, "/metrics"), re.M), "no lag")
        exposed = answer(port, "/metrics")
        assert "berth_backup_streaming 1.0" in exposed
        assert PASSWORD not in exposed
    status = stage.status()
    assert status is not None
    assert status.slot_keep == "4GB"


@pytest.mark.full
def test_the_password_is_on_no_command_line(stage: Stage) -> None:
    with stage.streaming() as stream:
        stage.wait_streamed()
        (receiver,) = receivers(stream.pid)
        assert not any(
            PASSWORD in part for process in (receiver, psutil.Process(stream.pid)) for part in process.cmdline()
        )


def test_another_servers_directory_ends_the_stream(stage: Stage) -> None:
    stage.directory.claim_for("7000000000000000001")
    with stage.streaming() as stream:
        assert stream.wait(60) == 1


@contextmanager
def own_server(directory: Path) -> Iterator[tuple[LocalPostgres, Stage]]:
    """A server that a test may stop, with small bounds."""
    with running_server(directory / "pg" / "data") as server:
        yield server, Stage(server, server.make_backup_role(PASSWORD), BackupDirectory(directory / "backups"))


@pytest.mark.full
def test_a_server_that_restarts_and_one_that_lost_wal(data_directory: Path) -> None:
    """A slot bounds what is kept for a stream that is gone; the gap is named, and a new backup ends it."""
    with own_server(data_directory) as (server, stage):
        with stage.streaming() as stream:
            before = stage.back_up().backup
            stage.mark()
            stage.wait_streamed()
            server.stop()
            wait_for(
                lambda: (status := stage.status()) is not None and status.code == "backup_server_unreachable",
                "the end is noticed",
            )
            server.start()
            stage.mark()
            stage.wait_streamed()
            assert stream.poll() is None
            assert stage.verify().rows["markers"] == 2
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("alter system set max_slot_wal_keep_size = '16MB'")
            connection.execute("alter system set min_wal_size = '32MB'")
        # On the command line of the local server as well, so the file alone has no effect.
        server.settings["max_slot_wal_keep_size"] = "16MB"
        server.settings["max_wal_size"] = server.settings["min_wal_size"] = "32MB"
        server.stop()
        server.start()
        with psycopg.connect(server.url(), autocommit=True) as connection:
            for _ in range(6):
                connection.execute("insert into markers default values")
                connection.execute("select pg_switch_wal()")
            connection.execute("checkpoint")
            kept = connection.execute("select wal_status from pg_replication_slots").fetchone()
        assert kept == ("lost",), "the server does not keep more for it"
        with stage.streaming():
            wait_for(
                lambda: (status := stage.status()) is not None and status.gaps == 1 and status.streaming, "it goes on"
            )
            stage.mark()
            stage.wait_streamed()
            (listed,) = list_backups(stage.directory)
            assert listed.wal_gap
            result = stage.verify()
            assert (result.ok, result.code, result.rows["markers"]) == (False, "wal_gap", 2)
            later = stage.back_up().backup
            stage.mark()
            stage.wait_streamed()
            newest, oldest = list_backups(stage.directory)
            assert (newest.backup, newest.wal_gap) == (later, False)
            assert (oldest.backup, oldest.wal_gap) == (before, True)
            result = stage.verify()
            assert (result.ok, result.rows["markers"]) == (True, stage.marks())


@pytest.mark.full
@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(1, 5)), min_size=1, max_size=40))
def test_the_lag_is_the_age_of_the_oldest_unconfirmed_wal(steps: list[tuple[int, int, int]]) -> None:
    lag, now, flushed, confirmed = Lag(0.0), 0.0, 0, 0
    seen: list[tuple[int, float]] = []
    for grown, received, seconds in steps:
        now += seconds
        flushed += grown
        confirmed = min(confirmed + received, flushed)
        lag.sample(flushed, confirmed, now)
        seen.append((flushed, now))
        oldest = min((at for position, at in seen if position > confirmed), default=now)
        assert lag.seconds(now, answers=True) == now - oldest
    assert lag.seconds(now + 7, answers=False) >= 7, "a silent server may have more"


def test_a_damaged_status_is_no_status(stage: Stage) -> None:
    stage.directory.claim_for("7000000000000000001")
    assert read_status(stage.directory) is None
    (stage.directory.path / "stream.json").write_text('{"at": 1')
    assert read_status(stage.directory) is None
    (stage.directory.path / "stream.json").write_text('{"other": 1}')
    assert read_status(stage.directory) is None
