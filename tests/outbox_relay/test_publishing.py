"""The stream is the log: every event at the sequence that is its version, whatever is killed (DESIGN P3, P14)."""

from __future__ import annotations

import psycopg
import pytest

from berth.local.servers import LocalNats
from tests.outbox_relay.conftest import StartRelay
from tests.outbox_relay.relays import (
    RelayProcess,
    events_all_the_time,
    head_version,
    leave_events,
    require_stream_is_log,
    stream_end,
)
from tests.support.waiting import wait_for


def reaches(nats_url: str, version: int) -> None:
    """Wait until NATS has `version`."""
    wait_for(lambda: stream_end(nats_url) >= version, f"NATS has version {version}")


def test_stream_is_the_log(start_relay: StartRelay, database: psycopg.Connection, nats_url: str) -> None:
    leave_events(database, [{"before": "the relay"}])
    relay = start_relay()
    leave_events(database, [{"number": number} for number in range(2_500)])
    leave_events(database, ["text", 1, None, ["é\n\u2028"], {"nested": {"deep": 1.5}}])
    documents = require_stream_is_log(nats_url, database)
    assert len(documents) == 2_506
    chains: dict[str, str] = {}
    for document in documents:
        tenant = document.get("tenantid")
        assert document["prevversion"] == (chains.get(tenant, "0") if tenant else "0")
        if tenant:
            chains[tenant] = document["version"]
    assert relay.metric("berth_relay_published_total") == 2_506
    assert relay.metric("berth_relay_lag_versions") == 0


def test_batches_are_bounded_by_bytes(start_relay: StartRelay, database: psycopg.Connection, nats_url: str) -> None:
    leave_events(database, [{"text": "x" * 40_000, "number": number} for number in range(20)])
    relay = start_relay(BERTH_RELAY_PUBLISH_BATCH_BYTES_MAX="100000")
    require_stream_is_log(nats_url, database)
    assert relay.metric("berth_relay_publish_batch_events_count") >= 10


def test_killed_relay_loses_and_doubles_nothing(
    start_relay: StartRelay, database: psycopg.Connection, database_url: str, nats_url: str
) -> None:
    relay = start_relay()
    with events_all_the_time(database_url):
        for _ in range(2):
            reaches(nats_url, stream_end(nats_url) + 200)
            relay.kill()
            relay = start_relay()
        reaches(nats_url, stream_end(nats_url) + 200)
    assert len(require_stream_is_log(nats_url, database)) == head_version(database)


@pytest.mark.full
def test_killed_nats_loses_and_doubles_nothing(
    start_relay: StartRelay, database: psycopg.Connection, database_url: str, own_nats: LocalNats
) -> None:
    relay = start_relay()
    with events_all_the_time(database_url):
        for _ in range(2):
            reaches(own_nats.url, stream_end(own_nats.url) + 300)
            own_nats.kill()
            behind = head_version(database)
            # Sequencing does not wait for NATS.
            wait_for(lambda behind=behind: head_version(database) > behind + 200, "sequencing goes on")  # type: ignore[misc]
            own_nats.start()
        reaches(own_nats.url, head_version(database))
    require_stream_is_log(own_nats.url, database)
    assert relay.metric("berth_relay_reconnects_total") >= 2


def publishers(relays: list[RelayProcess]) -> list[RelayProcess]:
    """Those that say that they publish."""
    return [relay for relay in relays if relay.ok().get("publishing") == "publisher"]


@pytest.mark.full
def test_several_relays_do_no_harm_and_one_takes_over(
    start_relay: StartRelay, database: psycopg.Connection, database_url: str, nats_url: str
) -> None:
    relays = [start_relay(ready=False) for _ in range(3)]
    for relay in relays:
        relay.wait_until_ok()
    with events_all_the_time(database_url):
        reaches(nats_url, stream_end(nats_url) + 300)
        wait_for(lambda: len(publishers(relays)) == 1, "one publishes and the others stand by")
        active = publishers(relays)[0]
        active.kill()
        relays.remove(active)
        # The promise: the log goes on within five seconds.
        due = head_version(database)
        wait_for(lambda: stream_end(nats_url) > due, "another relay takes over", seconds_max=5.0)
        reaches(nats_url, stream_end(nats_url) + 300)
    assert len(require_stream_is_log(nats_url, database)) == head_version(database)


def test_stream_is_made_anew_where_the_log_begins(
    start_relay: StartRelay, database: psycopg.Connection, nats_url: str
) -> None:
    leave_events(database, [{"number": number} for number in range(30)])
    database.execute("select log_advance(100)")
    database.execute("delete from log where version <= 12")
    start_relay()
    documents = require_stream_is_log(nats_url, database)
    assert documents[0]["version"] == "13"


def test_partition_boundaries_are_crossed(start_relay: StartRelay, database: psycopg.Connection, nats_url: str) -> None:
    for (name,) in database.execute("select inhrelid::regclass::text from pg_inherits").fetchall():
        if name.startswith("log_from_") and "key" not in name and "idx" not in name:
            database.execute(f"drop table {name}")
    database.execute("update log_head set partition_versions = 40")
    database.execute("select log_extend(0)")
    start_relay(BERTH_RELAY_SEQUENCE_BATCH_MAX="150")
    for size in (39, 1, 1, 300, 79, 2):
        leave_events(database, [{"number": number} for number in range(size)])
    assert len(require_stream_is_log(nats_url, database)) == 422
    row = database.execute("select count(*) from pg_inherits where inhparent = 'log'::regclass").fetchone()
    assert row is not None
    assert row[0] >= 13
