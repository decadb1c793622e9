"""The relay's position in PostgreSQL follows what NATS has stored, and NATS decides where publishing goes on."""

from __future__ import annotations

import os
import signal

import psycopg
import pytest

from berth.local.servers import LocalNats
from tests.outbox_relay.conftest import StartRelay
from tests.outbox_relay.relays import head_version, leave_events, require_stream_is_log, stream_end
from tests.support.waiting import wait_for

# Each event is a batch, and the position is saved at every opportunity.
EAGER = {"BERTH_RELAY_PUBLISH_BATCH_MAX": "1", "BERTH_RELAY_OBSERVE_SECONDS": "0.00001"}


def position(database: psycopg.Connection) -> int:
    """The relay's saved position."""
    row = database.execute("select version from consumer_positions where consumer = 'berth-relay'").fetchone()
    return int(row[0]) if row is not None else 0


@pytest.mark.full
def test_the_position_waits_for_a_stalled_nats(
    start_relay: StartRelay, database: psycopg.Connection, own_nats: LocalNats, nats_url: str
) -> None:
    relay = start_relay(**EAGER, BERTH_RELAY_PUBLISH_TIMEOUT_SECONDS="2")
    leave_events(database, [{"number": number} for number in range(5)])
    wait_for(lambda: position(database) == 5, "the position follows")
    assert own_nats.process is not None
    os.kill(own_nats.process.pid, signal.SIGSTOP)
    try:
        leave_events(database, [{"number": number} for number in range(20)])
        wait_for(lambda: head_version(database) == 25, "sequencing goes on")
        wait_for(lambda: relay.metric("berth_relay_reconnects_total") >= 1, "the relay gives up on its connection")
        assert position(database) == 5
    finally:
        os.kill(own_nats.process.pid, signal.SIGCONT)
    wait_for(lambda: position(database) == 25, "the position follows again")
    assert stream_end(nats_url) == 25
    assert len(require_stream_is_log(nats_url, database)) == 25


@pytest.mark.parametrize("saved", [0, 3, 12], ids=["lost", "behind", "ahead"])
def test_publishing_goes_on_where_the_stream_ends_whatever_the_position_is(
    start_relay: StartRelay, database: psycopg.Connection, nats_url: str, saved: int
) -> None:
    """A NATS that lost its last messages, or a PostgreSQL that lost the position."""
    relay = start_relay()
    leave_events(database, [{"number": number} for number in range(5)])
    require_stream_is_log(nats_url, database)
    assert relay.stop() == 0
    leave_events(database, [{"number": number} for number in range(7)])
    database.execute("select log_advance(100)")
    database.execute("update consumer_positions set version = %s where consumer = 'berth-relay'", (saved,))
    start_relay(BERTH_RELAY_OBSERVE_SECONDS="0.05")
    assert len(require_stream_is_log(nats_url, database)) == 12
    wait_for(lambda: position(database) == 12, "the position is what NATS stored")
