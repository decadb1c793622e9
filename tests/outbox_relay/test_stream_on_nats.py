"""A real stream that is not as the relay makes it is found, refused and mended; what consumers had read stays true."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import nats
import psycopg
import pytest
from cloudevents.core.exceptions import CloudEventValidationError
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from nats.js.api import RetentionPolicy, StorageType, StreamSource

from berth.client.feed.events import Event
from berth.client.nats_source import NatsSource
from outbox_relay.problems import PublishingStopped
from outbox_relay.rebuilding import Order
from outbox_relay.settings import Settings
from outbox_relay.stream import dangers_of, require_safe_configuration
from tests.outbox_relay.conftest import StartRelay
from tests.outbox_relay.relays import STREAM, log_rows, require_stream_is_log, stream_end
from tests.support.rebuilding import CONFIGURATION, ask, leave_log, run
from tests.support.waiting import wait_for

SETTINGS = Settings(database_url="postgresql://none", nats_url="nats://none")
WRONG: list[tuple[str, Any]] = [
    ("retention", RetentionPolicy.INTEREST),
    ("storage", StorageType.MEMORY),
    ("subjects", ["berth.events.operator.>"]),
    ("allow_atomic", False),
    ("no_ack", True),
    ("max_msgs", 10),
    ("max_bytes", 1_000_000),
    ("max_msgs_per_subject", 1),
    ("max_age", 3_600.0),
    ("duplicate_window", 60.0),
    ("sources", [StreamSource(name="OTHER")]),
]


def found(nats_url: str) -> list[str]:
    """What is dangerous about the stream as NATS has it."""
    return dangers_of(ask(nats_url, "stream_info", STREAM).config, SETTINGS)


def test_each_wrong_field_is_found_on_a_real_stream_and_mended_by_a_rebuild(
    database: psycopg.Connection, database_url: str, nats_url: str
) -> None:
    leave_log(database, 3)
    for field, value in WRONG:
        wrong = CONFIGURATION.evolve(**{field: value})
        if field == "no_ack":
            wrong = wrong.evolve(allow_atomic=False)  # NATS takes only one of the two
        if field == "max_age":
            wrong = wrong.evolve(duplicate_window=60.0)
        ask(nats_url, "add_stream", wrong)
        with pytest.raises(PublishingStopped) as stopped:
            require_safe_configuration(ask(nats_url, "stream_info", STREAM).config, SETTINGS)
        assert stopped.value.reason == "stream_configuration", field
        named = {"duplicate_window": "duplicate window", "sources": "sources"}.get(field, field)
        assert any(named in danger for danger in found(nats_url)), field
        run(database_url, nats_url)
        assert found(nats_url) == [], field
        require_stream_is_log(nats_url, database)
        ask(nats_url, "delete_stream", STREAM)


def test_a_relay_stops_at_a_wrong_stream_and_goes_on_when_it_is_mended(
    start_relay: StartRelay, database: psycopg.Connection, database_url: str, nats_url: str
) -> None:
    leave_log(database, 5)
    ask(nats_url, "add_stream", CONFIGURATION.evolve(max_msgs=2))
    relay = start_relay(ready=False)
    wait_for(lambda: "stopped" in relay.ok(), "the relay stops publishing")
    assert "max_msgs is 2, not unlimited" in relay.ok()["stopped"]["why"]
    assert stream_end(nats_url) == 0
    run(database_url, nats_url)
    relay.wait_until_ok()
    leave_log(database, 2)
    wait_for(lambda: stream_end(nats_url) == 7, "the relay goes on")
    require_stream_is_log(nats_url, database)


def test_a_consumer_sees_only_duplicates_after_a_partial_rebuild(
    database: psycopg.Connection, database_url: str, nats_url: str
) -> None:
    leave_log(database, 100)
    run(database_url, nats_url)

    async def read(after: int, number: int) -> list[Event]:
        connection = await nats.connect(nats_url)
        told: list[Event] = []
        try:
            async with aclosing(NatsSource(connection).event_lists(after)) as lists:
                async for several in lists:
                    told += several
                    if len(told) >= number:
                        return told
        finally:
            await connection.close()
        return told

    before = asyncio.run(read(0, 80))
    done = run(database_url, nats_url, Order(first_version=61, anew=True))
    assert (done.first_version, done.last_version) == (61, 100)
    leave_log(database, 20)
    run(database_url, nats_url, Order(first_version=61))
    goes_on = asyncio.run(read(before[-1].version, 120 - before[-1].version))
    assert [one.version for one in before + goes_on] == list(range(1, 121)), "where it was it goes on, gapless"
    again = asyncio.run(read(60, 60))
    had_read = {one.version: one for one in before + goes_on}
    assert [had_read[one.version] for one in again] == again, "what comes twice is the same event at the same version"
    assert [str(one.event_id) for one in before + goes_on] == [str(row["event_id"]) for row in log_rows(database)]


def test_what_is_published_is_cloudevents_by_the_sdks_judgement(
    database: psycopg.Connection, database_url: str, nats_url: str
) -> None:
    leave_log(database, 3)
    run(database_url, nats_url)
    for version, row in enumerate(log_rows(database), 1):
        published = ask(nats_url, "get_msg", STREAM, version).data
        event = JSONFormat().read(CloudEvent, published)
        assert (event.get_id(), event.get_extension("version")) == (str(row["event_id"]), str(version))
        assert event.get_time() == row["occurred_at"]
        # The SDK draws what is missing of these by itself; so they are looked for in what was published.
        told = json.loads(published)
        assert {"id", "specversion", "time"} <= told.keys()
        for needed in ("source", "type"):
            with pytest.raises(CloudEventValidationError):
                JSONFormat().read(CloudEvent, json.dumps({k: told[k] for k in told.keys() - {needed}}).encode())
