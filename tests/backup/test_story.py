"""The whole story: a base backup and streamed WAL under load restore exactly the rows of any later moment."""

from __future__ import annotations

import threading
from datetime import datetime

import psycopg
import pytest

from berth.cli.deployment.backup.catalogue import list_backups
from tests.backup.stage import Stage
from tests.support.waiting import wait_for

WRITERS = 4


def committed_by(stage: Stage, moment: datetime) -> int:
    """The markers that were committed at a moment, by the server's own commit timestamps."""
    with psycopg.connect(stage.server.url(), autocommit=True) as connection:
        query = "select count(*) from markers where pg_xact_commit_timestamp(xmin) <= %s"
        row = connection.execute(query, (moment,)).fetchone()
    assert row is not None
    return int(row[0])


def write_until(stage: Stage, stop: threading.Event) -> None:
    """Commit one marker after another."""
    with psycopg.connect(stage.server.url(), autocommit=True) as connection:
        while not stop.is_set():
            connection.execute("insert into markers default values")


@pytest.mark.full  # tests/backup/test_restoring.py has the moment, without writers beside it
def test_a_restore_has_exactly_the_rows_of_the_moment(stage: Stage) -> None:
    stop = threading.Event()
    writers = [threading.Thread(target=write_until, args=(stage, stop)) for _ in range(WRITERS)]
    for writer in writers:
        writer.start()
    try:
        with stage.streaming():
            backup = stage.back_up().backup
            before = stage.marks()
            wait_for(lambda: stage.marks() > before + 500, "more rows after the backup")
            moment = stage.mark()
            wait_for(lambda: stage.marks() > committed_by(stage, moment) + 500, "rows after the moment")
            stage.wait_streamed()
            stop.set()
            for writer in writers:
                writer.join()
            expected = committed_by(stage, moment)
            assert before < expected < stage.marks()
            at_moment = stage.verify(moment)
            assert (at_moment.ok, at_moment.detail) == (True, None)
            assert at_moment.backup == backup.name
            assert at_moment.rows["markers"] == expected
            assert at_moment.restored_to is not None
            assert datetime.fromisoformat(at_moment.restored_to) <= moment
            stage.wait_streamed()
            everything = stage.verify()
            assert everything.rows["markers"] == stage.marks()
    finally:
        stop.set()
    (listed,) = list_backups(stage.directory)
    assert listed.is_verified
    assert listed.result is not None
    assert listed.result["rows"]["markers"] == stage.marks(), "the last result is stored beside the backup"
    assert len(everything.checks) > 15
    assert all(check["kept"] for check in everything.checks)


@pytest.mark.full
def test_the_scratch_server_is_gone_and_the_server_was_left_alone(stage: Stage) -> None:
    stage.back_up()
    slots = "select count(*) from pg_replication_slots"
    result = stage.verify()
    assert result.ok
    assert list((stage.directory.path / "scratch").iterdir()) == []
    with psycopg.connect(stage.server.url(), autocommit=True) as connection:
        assert connection.execute(slots).fetchone() == (0,)
