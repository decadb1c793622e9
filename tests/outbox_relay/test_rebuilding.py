"""The stream is made anew from the log: with relays at work, interrupted, in part, and after Postgres lost versions."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import psycopg
import pytest
from nats.aio.client import Client
from nats.js.api import RetentionPolicy

from berth.client import Event, LogGap, LogTruncated
from berth.client.consumer import _following
from berth.client.nats_source import NatsSource
from berth.local.servers import LocalNats
from orchestrator.verification.all_checks import run_checks
from outbox_relay.problems import RelayProblem
from outbox_relay.reading import LogReader
from outbox_relay.rebuilding import NothingToDo, Order
from tests.berth.commands import assert_one_sentence, berth, environment
from tests.outbox_relay.conftest import StartRelay
from tests.outbox_relay.relays import (
    STREAM,
    asked,
    head_version,
    leave_events,
    log_rows,
    require_stream_is_log,
    stream_end,
)
from tests.support.rebuilding import CONFIGURATION, ask, first_sequence, leave_log, run
from tests.support.waiting import wait_for


def test_a_lost_stream_is_made_anew_without_any_relay_and_once_is_enough(
    database: psycopg.Connection, database_url: str, nats_url: str
) -> None:
    leave_log(database, 1_234)
    done = run(database_url, nats_url)
    assert (done.because, done.first_version, done.last_version) == ("there was none", 1, 1_234)
    assert done.published == 1_234
    require_stream_is_log(nats_url, database)
    with pytest.raises(NothingToDo, match="from version 1 to 1234"):
        run(database_url, nats_url)
    leave_log(database, 10)
    completed = run(database_url, nats_url)
    assert (completed.because, completed.published) == (None, 10)
    require_stream_is_log(nats_url, database)


# Long; the quicker test: test_a_lost_stream_is_made_anew_without_any_relay_and_once_is_enough.
@pytest.mark.full
def test_relays_at_work_and_a_rebuild_do_not_fight(
    start_relay: StartRelay, database: psycopg.Connection, database_url: str, nats_url: str
) -> None:
    relays = [start_relay(), start_relay()]
    leave_log(database, 3_000)
    stopping = threading.Event()

    def keep_writing() -> None:
        with psycopg.connect(database_url, autocommit=True) as connection:
            while not stopping.wait(0.002):
                leave_events(connection, [{"busy": True}] * 5)

    writing = threading.Thread(target=keep_writing)
    writing.start()
    try:
        for _ in range(4):
            assert run(database_url, nats_url, Order(anew=True)).because == "that was asked for"
    finally:
        stopping.set()
        writing.join()
    require_stream_is_log(nats_url, database)
    for relay in relays:
        assert relay.process.poll() is None, relay.log.read_text()
    leave_events(database, [{"after": "all that"}])
    assert require_stream_is_log(nats_url, database)[-1]["data"] == {"after": "all that"}


def test_the_ordered_first_version_holds_for_every_process_that_makes_the_stream(
    start_relay: StartRelay, database: psycopg.Connection, database_url: str, nats_url: str
) -> None:
    leave_log(database, 100)
    done = run(database_url, nats_url, Order(first_version=61))
    assert (done.first_version, done.last_version, done.published) == (61, 100, 40)
    assert first_sequence(nats_url) == 61
    with pytest.raises(NothingToDo):
        run(database_url, nats_url, Order(first_version=61))
    ask(nats_url, "delete_stream", STREAM)
    start_relay()
    wait_for(lambda: stream_end(nats_url) == 100, "the relay makes the stream")
    assert first_sequence(nats_url) == 61
    whole = run(database_url, nats_url)
    assert (whole.because, whole.first_version) == ("it began at version 61", 1)
    require_stream_is_log(nats_url, database)
    for impossible in (101, 5_000):
        with pytest.raises(RelayProblem, match=f"versions 1 to 100, so --from {impossible} cannot be"):
            run(database_url, nats_url, Order(first_version=impossible))


# Long; the quicker test: test_a_lost_stream_is_made_anew_without_any_relay_and_once_is_enough.
@pytest.mark.full
def test_a_killed_rebuild_is_repeated(database: psycopg.Connection, database_url: str, nats_url: str) -> None:
    leave_log(database, 10_000)
    command = [sys.executable, "-m", "berth.cli", "events", "rebuild", "--output", "json"]
    # Small batches, so that the kill finds it in the middle.
    settings = {
        "BERTH_DATABASE_URL": database_url, "BERTH_NATS_URL": nats_url, "BERTH_RELAY_PUBLISH_BATCH_MAX": "5",
    }  # fmt: skip
    for _ in range(2):
        end = stream_end(nats_url)
        running = subprocess.Popen(command, env=environment(**settings), stdout=subprocess.DEVNULL)
        wait_for(lambda end=end: stream_end(nats_url) > end, "some to be published")  # type: ignore[misc]
        running.kill()
        running.wait()
    assert 0 < stream_end(nats_url) < 10_000
    done = berth("events", "rebuild", "--output", "json", **settings)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["because"], told["first_version"], told["last_version"]) == (None, 1, 10_000)
    assert 0 < told["published"] < 10_000
    require_stream_is_log(nats_url, database)


def test_a_stream_that_is_not_the_log_is_made_anew(
    database: psycopg.Connection, database_url: str, nats_url: str
) -> None:
    leave_log(database, 20)
    run(database_url, nats_url)
    ask(nats_url, "delete_msg", STREAM, 7)
    assert run(database_url, nats_url).because == "it held 19 messages for 20 versions"
    ask(nats_url, "delete_stream", STREAM)
    ask(nats_url, "add_stream", CONFIGURATION)
    for _ in range(20):
        ask(nats_url, "publish", "berth.events.operator.foreign", b"{}")
    assert str(run(database_url, nats_url).because).startswith("it held another event at version")
    require_stream_is_log(nats_url, database)
    ask(nats_url, "delete_stream", STREAM)
    ask(nats_url, "add_stream", replace(CONFIGURATION, retention=RetentionPolicy.WORK_QUEUE))
    assert "retention is workqueue" in str(run(database_url, nats_url).because)
    require_stream_is_log(nats_url, database)


def test_versions_that_postgres_lost_are_never_given_again(
    start_relay: StartRelay, database: psycopg.Connection, database_url: str, nats_url: str
) -> None:
    relay = start_relay()
    leave_log(database, 10)
    told = {str(row["event_id"]) for row in log_rows(database)}
    require_stream_is_log(nats_url, database)
    relay.kill()
    fence = database.execute("select nextval('fences')").fetchone()
    # As after a failover to a standby that had got version 6, and wrote on.
    database.execute("delete from log where version > 6")
    database.execute("delete from log_tenants")
    database.execute(
        "insert into log_tenants select tenant_id, max(version) from log where tenant_id is not null group by 1"
    )
    database.execute("update log_head set version = 6, leader_id = '1-00000001'")
    leave_log(database, 9)
    written = [str(row["event_id"]) for row in log_rows(database)[6:]]
    relay = start_relay(ready=False)
    wait_for(lambda: "stopped" in relay.ok(), "the relay stops publishing")
    assert "the log was written by Postgres 1-00000001" in relay.ok()["stopped"]["why"]
    with pytest.raises(RelayProblem, match="--accept-timeline"):
        run(database_url, nats_url)
    assert head_version(database) == 15
    done = run(database_url, nats_url, Order(accept_timeline=True))
    assert done.accepted is not None
    last = done.first_version
    assert last >= 15 + 2**20
    assert (done.accepted.moved, done.accepted.lost, done.accepted.skipped) == (9, 4, last - 6)
    rows = log_rows(database)
    # No stream holds versions that are not one after the other.
    assert [row["version"] for row in rows] == [*range(1, 7), *range(last, last + 10)]
    assert (rows[6]["event_type"], rows[6]["payload"]) == ("log.versions_skipped", {"first": 7, "last": last})
    assert [str(row["event_id"]) for row in rows[7:]] == written
    assert {str(row["event_id"]) for row in rows[:6]} < told
    documents = require_stream_is_log(nats_url, database)
    assert len(documents) == 10
    require_chain(nats_url, last)
    assert [verdict.violations for verdict in run_checks(database_url) if verdict.promise == "P3"] == [[]]
    raised = database.execute("select nextval('fences')").fetchone()
    assert raised is not None
    assert fence is not None
    assert raised[0] > fence[0] + 1_000_000
    relay.wait_until_ok()
    leave_events(database, [{"life": "goes on"}])
    assert require_stream_is_log(nats_url, database)[-1]["version"] == str(last + 10)
    audited = database.execute("select action, detail ->> 'skipped' from audit order by id").fetchall()
    assert ("events.accept_timeline", str(last - 6)) in audited
    with pytest.raises(NothingToDo):
        run(database_url, nats_url)


def require_chain(nats_url: str, last: int) -> None:
    """A consumer of before goes on behind what is skipped, and only there: wherever it was from the sixth version on."""

    async def first_after(client: Client, after: int) -> tuple[int, int | None]:
        async for events in NatsSource(client).event_lists(after):
            return events[0].version, events[0].prev_version
        raise AssertionError("the source ended")

    for after in (6, 10, 15, last - 1):
        assert asked(nats_url, partial(first_after, after=after)) == (last, 6), "its chain has no gap"
        assert _following(after, [skipped(last)])
    with pytest.raises(LogTruncated):
        asked(nats_url, partial(first_after, after=5))
    with pytest.raises(LogGap):
        _following(5, [skipped(last)])


def skipped(last: int) -> Event:
    """The event that replaces versions 7 to `last`, as the feed has it."""
    return Event(
        last, 6, uuid.UUID(int=1), "log.versions_skipped", datetime.now(UTC), f"log/{last}", uuid.UUID(int=2), None, None, None,
        "1-00000001", {"first": 7, "last": last},
    )  # fmt: skip


def test_versions_that_a_copied_data_directory_lost_are_never_given_again(
    start_relay: StartRelay, database: psycopg.Connection, database_url: str, nats_url: str
) -> None:
    """As the case before, on the same timeline, and the log has passed the end of the stream."""
    relay = start_relay()
    leave_log(database, 10)
    require_stream_is_log(nats_url, database)
    published = [row["event_id"] for row in log_rows(database)]
    relay.kill()
    database.execute("delete from log where version > 6")
    database.execute("delete from log_tenants")
    database.execute(
        "insert into log_tenants select tenant_id, max(version) from log where tenant_id is not null group by 1"
    )
    database.execute("update log_head set version = 6")
    leave_log(database, 9)
    relay = start_relay(ready=False)
    wait_for(lambda: relay.ok().get("stopped", {}).get("reason") == "diverged", "publishing stops")
    with pytest.raises(RelayProblem, match=r"NATS has another history.*--accept-timeline"):
        run(database_url, nats_url)
    assert (head_version(database), stream_end(nats_url)) == (15, 10)
    # A first run that ended between the acceptance and the deletion of the stream.
    accepted = database.execute("select moved, skipped from log_skip_versions(7, 10, 100)").fetchone()
    assert accepted == (9, 15 + 100 - 6)
    done = run(database_url, nats_url, Order(accept_timeline=True))
    assert done.accepted is None, "nothing is moved twice"
    assert (head_version(database), done.first_version) == (124, 115)
    rows = log_rows(database)
    assert (rows[6]["event_type"], rows[6]["version"]) == ("log.versions_skipped", 115)
    assert [row["event_id"] for row in rows[:6]] == published[:6]
    relay.wait_until_ok()
    leave_events(database, [{"life": "goes on"}])
    assert require_stream_is_log(nats_url, database)[-1]["version"] == "125"
    assert [verdict.violations for verdict in run_checks(database_url) if verdict.promise == "P3"] == [[]]


def test_a_new_timeline_that_lost_nothing_moves_nothing(
    start_relay: StartRelay, database: psycopg.Connection, database_url: str, nats_url: str
) -> None:
    start_relay().wait_until_ok()
    leave_log(database, 10)
    require_stream_is_log(nats_url, database)
    before = [row["event_id"] for row in log_rows(database)]
    database.execute("update log_head set leader_id = '1-00000001'")
    done = run(database_url, nats_url, Order(accept_timeline=True))
    assert done.accepted is not None
    assert (done.accepted.moved, done.accepted.lost, done.because) == (0, 0, None)
    assert [row["event_id"] for row in log_rows(database)] == before


def test_no_version_that_a_consumer_has_read_is_given_again_though_nats_lost_it(
    database: psycopg.Connection, database_url: str, nats_url: str
) -> None:
    leave_log(database, 10)
    run(database_url, nats_url)
    ask(nats_url, "delete_stream", STREAM)
    order = Order(highest_version=2**40)
    with pytest.raises(RelayProblem, match="version 1099511627776 was read by a consumer, and the log ends at 10"):
        run(database_url, nats_url, order)
    done = run(database_url, nats_url, replace(order, accept_timeline=True))
    assert done.first_version >= 2**40 + 2**20
    require_stream_is_log(nats_url, database)
    assert log_rows(database)[-1]["payload"] == {"first": 11, "last": done.first_version}
    with pytest.raises(NothingToDo):
        run(database_url, nats_url, replace(order, accept_timeline=True))


def test_the_claim_of_a_rebuild_ends_before_its_session(database_url: str) -> None:
    async def scene() -> list[bool]:
        async with LogReader.connected(database_url) as first, LogReader.connected(database_url) as second:
            async with first.sole_rebuild() as alone, second.sole_rebuild() as refused:
                held = [alone, refused]
            with pytest.raises(RelayProblem):
                async with first.sole_rebuild():
                    raise RelayProblem("refused")
            async with second.sole_rebuild() as again:
                return [*held, again]

    assert asyncio.run(scene()) == [True, False, True]


def test_what_cannot_be_done_is_one_sentence(
    database: psycopg.Connection, database_url: str, own_nats: LocalNats, nats_url: str
) -> None:
    settings = {"BERTH_DATABASE_URL": database_url, "BERTH_NATS_URL": nats_url}
    assert_one_sentence(berth("events", "rebuild", **settings), 1, "nothing is to be done", "no event yet")
    leave_log(database, 3)
    database.execute("select pg_advisory_lock(hashtext('berth.events.rebuild'))")
    assert "another rebuild" in assert_one_sentence(berth("events", "rebuild", **settings), 1)
    database.execute("select pg_advisory_unlock_all()")
    assert_one_sentence(berth("events", "rebuild", "--from", "9", **settings), 1, "versions 1 to 3", "--from 9")
    nowhere = {**settings, "BERTH_DATABASE_URL": "postgresql://x@127.0.0.1:1/x"}
    assert "PostgreSQL cannot be used" in assert_one_sentence(berth("events", "rebuild", **nowhere), 3)
    own_nats.stop()
    assert_one_sentence(berth("events", "rebuild", **settings), 3, "NATS cannot be used", "repeat the command")
    own_nats.start()
