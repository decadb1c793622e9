"""How much is lost when the disk of the primary is lost under load, with a stream: seconds, by the database's stamps of commits.

`--log-cli-level=INFO` shows the figure.
"""

from __future__ import annotations

import logging
import shutil
import threading
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import psycopg
import pytest

from berth.cli.deployment.backup.directory import BackupDirectory
from berth.cli.deployment.backup.findings import LOST_SECONDS_MAX
from berth.cli.deployment.backup.restoring import restore_backup
from tests.backup.recovering import owner_of, recovered
from tests.backup.stage import Stage, running_server
from tests.support.waiting import wait_for

log = logging.getLogger(__name__)
WRITERS, ACKNOWLEDGED_MIN = 4, 2_000


class Load:
    """Clients that commit one row after another until the server is gone. `acknowledged`: when each commit was dated."""

    def __init__(self, url: str) -> None:
        self.acknowledged: list[datetime] = []
        self._url = url
        self._writers = [threading.Thread(target=self._write) for _ in range(WRITERS)]

    def start(self) -> None:
        """Begin to commit."""
        for writer in self._writers:
            writer.start()

    def wait_for_end(self) -> None:
        """Return when every client has noticed that the server is gone."""
        for writer in self._writers:
            writer.join()

    def _write(self) -> None:
        with suppress(psycopg.OperationalError), psycopg.connect(self._url, autocommit=True) as connection:
            while True:
                row = connection.execute("insert into markers default values returning at").fetchone()
                assert row is not None
                self.acknowledged.append(row[0])


# Under load, and as a figure. test_streaming.py has what the stream does.
@pytest.mark.full
def test_a_lost_disk_under_load_loses_no_more_than_the_stream_promises(server_directory: Path, place: Path) -> None:
    with running_server(place / "server") as server:
        stage = Stage(server, server.url(), BackupDirectory(place / "backups"))
        stage.directory.path.mkdir(mode=0o700)
        stage.back_up()
        load = Load(server.url())
        with stage.streaming():
            stage.mark()
            stage.wait_streamed()
            load.start()
            wait_for(lambda: len(load.acknowledged) >= ACKNOWLEDGED_MIN, "commits are acknowledged")
            streamed = max(load.acknowledged)
            stage.wait_streamed()
            wait_for(lambda: len(load.acknowledged) >= 2 * ACKNOWLEDGED_MIN, "the load goes on")
            owner = owner_of(stage)
            server.kill()
            shutil.rmtree(server.directory)
            load.wait_for_end()
    restore_backup(stage.directory, place / "data", None, None, owner)
    with recovered(stage, place / "data") as connection:
        row = connection.execute("select max(at), count(*) - 1 from markers").fetchone()
    assert row is not None
    newest, kept = row
    assert isinstance(newest, datetime)
    lost_seconds = max(0.0, (max(load.acknowledged) - newest).total_seconds())
    log.info("%.3f s are lost: %d commits acknowledged, %d restored", lost_seconds, len(load.acknowledged), kept)
    assert newest >= streamed, "what the stream had confirmed is there, also of the unfinished segment"
    assert lost_seconds <= LOST_SECONDS_MAX
