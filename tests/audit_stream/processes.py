"""Audit streamers as processes over a test's database, and the rows that they send."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from berth.local.servers import free_port
from migrations.roles import Role
from tests.databases import as_role
from tests.forked.starting import CommandLine
from tests.metrics_ports import NO_ANSWER, get
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for

ROOT = Path(__file__).parents[2]
QUICK = {
    "BERTH_AUDIT_STREAM_TICK_SECONDS": "0.05",
    "BERTH_AUDIT_STREAM_TIMEOUT_SECONDS": "1",
    "BERTH_AUDIT_STREAM_BACKOFF_SECONDS_MAX": "0.3",
    "BERTH_AUDIT_SYSLOG_SETTLE_SECONDS": "0.3",
    "BERTH_AUDIT_SYSLOG_HOSTNAME": "control-1",
}
INSERT = """
insert into audit (principal_kind, principal_id, action, subject, detail)
select 'system', 'test', 'thing.turn', 'things/' || n, jsonb_build_object('n', n, 'é', E'<"\\\\>', 'x', 1.5)
from generate_series(1, %s) n
"""


def append(database: psycopg.Connection[Any], rows: int) -> int:
    """Write and chain rows; return the sequence of the newest."""
    database.execute(INSERT, (rows,))
    while database.execute("select audit_advance(1000)").fetchone() != (0,):
        pass
    row = database.execute("select sequence from audit_head").fetchone()
    assert row is not None
    return int(row[0])


def stream_of(database: psycopg.Connection[Any], name: str) -> tuple[int, bool, str | None]:
    """Saved position of a stream, whether it fails, and why."""
    row = database.execute(
        "select sequence, failing_since is not null, last_error from audit_streams where name = %s", (name,)
    ).fetchone()
    return (0, False, None) if row is None else (int(row[0]), bool(row[1]), row[2])


class StreamerProcess:
    """`python -m worker --audit-stream`. `log` has what it printed."""

    def __init__(self, database_url: str, log: Path, launcher: tuple[str, ...], **settings: str) -> None:
        self.port = free_port()
        self.log = log
        environment = {
            "PATH": os.environ["PATH"],
            "BERTH_DATABASE_URL": as_role(database_url, Role.AUDIT_STREAM),
            "BERTH_METRICS_PORT": str(self.port),
            **QUICK,
            **settings,
        }
        with log.open("ab") as output:
            command = [sys.executable, "-m", *launcher, "worker", "--audit-stream"]
            self.process = CommandLine(command, env=environment, stdout=output, stderr=output, cwd=ROOT)

    def ready(self) -> bool:
        """Whether it has started."""
        try:
            return get(self.port, "/ok")[0] == 200
        except NO_ANSWER:
            return False

    def metric(self, name: str, **labels: str) -> float:
        """One sample."""
        wanted = "".join(f'(?=.*{label}="{value}")' for label, value in labels.items())
        found = re.search(rf"^{name}\{{{wanted}.*\}} (\S+)$", get(self.port, "/metrics")[1], re.MULTILINE)
        return float(found[1]) if found else 0.0

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The log lines of an event."""
        lines = (json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{"))
        return [line for line in lines if line.get("event") == event]

    def stop(self) -> int:
        """End it in order; its exit status."""
        self.process.terminate()
        return self.process.wait(WAIT_SECONDS_MAX)


@contextmanager
def streaming(database_url: str, directory: Path, *, crash_at: str = "", **settings: str) -> Iterator[StreamerProcess]:
    """A streamer, killed at the end. With `crash_at` it is of the test build and dies there."""
    launcher = ("tests.testbuild",) if crash_at else ()
    if crash_at:
        settings["BERTH_CRASH_AT"] = crash_at
    made = StreamerProcess(database_url, directory / "streamer.log", launcher, **settings)
    try:
        if not crash_at:
            wait_for(made.ready, "the streamer to be ready")
        yield made
    finally:
        made.process.kill()
        made.process.wait()
