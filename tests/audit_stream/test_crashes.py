"""A streamer is killed at each of its crash points; the next one sends the rest, and repeats at most what was not saved."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from berth.local.servers import LocalNats
from orchestrator.crash_points import CrashPoint
from tests.at_length import at_length
from tests.audit_stream.jetstream import sequences, to
from tests.audit_stream.processes import append, stream_of, streaming
from tests.audit_stream.receivers import tcp_receiver
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for
from tests.testbuild.killing import REACHED

POINTS = [point for point in CrashPoint if point.startswith("audit_stream.")]
ROWS = 30
IN_BATCHES = {"BERTH_AUDIT_STREAM_BATCH_MAX": "10"}


# Long. tests/audit_stream/test_nats.py starts the stream again at its saved position.
@pytest.mark.full
@pytest.mark.quick("audit_stream.after_send-1")
@pytest.mark.parametrize("number", at_length([1, 2], [1]))
@pytest.mark.parametrize("point", POINTS)
def test_nothing_is_lost_when_the_streamer_is_killed(
    database_url: str,
    database: psycopg.Connection[Any],
    nats_with_users: LocalNats,
    tmp_path: Path,
    point: CrashPoint,
    number: int,
) -> None:
    append(database, ROWS)
    settings = to(nats_with_users, **IN_BATCHES)
    _die(database_url, tmp_path, f"{point}:{number}", settings)
    saved, sent = stream_of(database, "nats")[0], len(sequences(nats_with_users))
    done = 10 * (number - 1)
    assert (saved, sent) == {
        CrashPoint.AUDIT_STREAM_BEFORE_SEND: (done, done),
        CrashPoint.AUDIT_STREAM_AFTER_SEND: (done, done + 10),
        CrashPoint.AUDIT_STREAM_AFTER_SAVED: (done + 10, done + 10),
    }[point]
    newest = append(database, 5)
    with streaming(database_url, tmp_path, **settings):
        wait_for(lambda: stream_of(database, "nats")[0] == newest, "the rest")
    assert sequences(nats_with_users) == list(range(1, newest + 1)), "JetStream drops what is repeated"


@pytest.mark.full
@pytest.mark.parametrize("point", at_length(POINTS, POINTS[:1]))
def test_a_syslog_receiver_gets_every_row_and_repetitions_of_the_last_batch_alone(
    database_url: str, database: psycopg.Connection[Any], tmp_path: Path, point: CrashPoint
) -> None:
    append(database, ROWS)
    settings = {**IN_BATCHES, "BERTH_AUDIT_SYSLOG_SETTLE_SECONDS": "0"}
    with tcp_receiver() as receiver:
        settings["BERTH_AUDIT_SYSLOG_URL"] = receiver.url
        _die(database_url, tmp_path, f"{point}:2", settings)
        saved = stream_of(database, "syslog")[0]
        newest = append(database, 5)
        with streaming(database_url, tmp_path, **settings):
            wait_for(lambda: stream_of(database, "syslog")[0] == newest, "the rest")
        receiver.await_rows(newest)
    assert receiver.problems == []
    repeated = [11, *range(12, 21)] if point is CrashPoint.AUDIT_STREAM_AFTER_SEND else []
    assert receiver.sequences == [*range(1, saved + 1), *repeated, *range(saved + 1, newest + 1)]


def _die(database_url: str, directory: Path, crash_at: str, settings: dict[str, str]) -> None:
    """Run a streamer until it dies at the point."""
    with streaming(database_url, directory, crash_at=crash_at, **settings) as streamer:
        assert streamer.process.wait(WAIT_SECONDS_MAX) == -signal.SIGKILL
    assert REACHED.format(crash_at) in streamer.log.read_text()
