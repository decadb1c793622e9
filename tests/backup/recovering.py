"""PostgreSQL on a data directory that `berth backup restore` made."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from berth.local.servers import LocalPostgres, free_port
from tests.backup.stage import Stage
from tests.support.waiting import wait_for


def owner_of(stage: Stage) -> str | None:
    """The system user that servers of the tests run as; None: that of this process."""
    return None if stage.server.directory.stat().st_uid == os.geteuid() else stage.server.directory.owner()


@contextmanager
def recovered(stage: Stage, data: Path) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A connection to PostgreSQL that was started on the directory as usual, and has ended its recovery."""
    server = LocalPostgres(data, free_port(), stage.server.password)
    server.start()
    try:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            wait_for(
                lambda: connection.execute("select pg_is_in_recovery()").fetchone() == (False,), "the recovery ended"
            )
            yield connection
    finally:
        server.stop()
