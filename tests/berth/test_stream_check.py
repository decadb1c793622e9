"""The stream check: a stream that a real relay published passes, and every difference from the log is found."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from nats.aio.client import Client

from berth.cli.deployment import stream_check, stream_headers
from berth.cli.deployment.stream_check import STREAM, StreamUnreachable, check_stream
from berth.local.servers import LocalNats, free_port
from tests.outbox_relay.relays import RelayProcess, asked, head_version, leave_events, outbox_is_empty
from tests.support.waiting import wait_for

EVENTS = 30


@pytest.fixture
def published(database_url: str, nats_server: LocalNats, tmp_path: Path) -> Iterator[psycopg.Connection]:
    """A database whose events are all in the stream; the relay has ended."""
    relay = RelayProcess(database_url, nats_server.url, tmp_path)
    with psycopg.connect(database_url, autocommit=True) as database:
        try:
            relay.wait_until_ok()
            leave_events(database, [{"n": n} for n in range(EVENTS)])
            wait_for(lambda: outbox_is_empty(database), "the events are in the log")

            async def last(client: Client) -> int:
                return int((await client.jetstream().stream_info(STREAM)).state.last_seq)

            wait_for(lambda: asked(nats_server.url, last) == head_version(database), "the events are in the stream")
        finally:
            relay.kill()
        yield database

    async def delete(client: Client) -> None:
        await client.jetstream().delete_stream(STREAM)

    asked(nats_server.url, delete)


def test_the_stream_is_compared_with_the_log(
    published: psycopg.Connection, database_url: str, nats_server: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_check, "CATCH_UP_SECONDS", 0.2)
    verdict = check_stream(database_url, nats_server.url)
    assert verdict.kept, verdict.violations
    assert verdict.checked == verdict.checked_through == EVENTS

    # A sample is enough to see that two events changed places when the sample is all; both ends are always in it.
    monkeypatch.setattr(stream_check, "COMPARED_MAX", 2)
    monkeypatch.setattr(stream_check, "BLOCK", 1)
    assert check_stream(database_url, nats_server.url).checked == 2
    monkeypatch.setattr(stream_check, "COMPARED_MAX", 100)

    swap = "update log set event_id = case version when 3 then %(b)s::uuid else %(a)s::uuid end where version in (3, 9)"
    ids: dict[int, object] = dict(
        published.execute("select version, event_id from log where version in (3, 9)").fetchall()
    )
    published.execute(swap, {"a": ids[3], "b": ids[9]})
    found = check_stream(database_url, nats_server.url)
    assert [sentence.split(" is ")[0] for sentence in found.violations] == ["version 3", "version 9"]
    published.execute(swap, {"a": ids[9], "b": ids[3]})

    published.execute("update log_head set version = version + 1")
    behind = check_stream(database_url, nats_server.url)
    assert behind.violations == [f"the stream ends at {EVENTS}, the log's head is {EVENTS + 1}; is the relay running?"]

    published.execute("update log_head set version = version - 2")
    ahead = check_stream(database_url, nats_server.url)
    assert f"the stream is at {EVENTS}, ahead of the log's head {EVENTS - 1}" in ahead.violations


def test_a_log_without_a_stream_is_a_violation_and_an_empty_one_is_none(
    database_url: str, nats_server: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_check, "CATCH_UP_SECONDS", 0.0)
    assert check_stream(database_url, nats_server.url).kept
    with psycopg.connect(database_url, autocommit=True) as database:
        leave_events(database, [1])
        database.execute("select log_advance(10)")
    assert not check_stream(database_url, nats_server.url).kept


def test_an_unreachable_nats_is_named(database_url: str) -> None:
    address = f"nats://127.0.0.1:{free_port()}"
    with pytest.raises(StreamUnreachable, match=f"{address}; is it running"):
        check_stream(database_url, address)


def test_what_is_missing_inside_the_stream_is_found_and_an_old_beginning_may_be_gone(
    published: psycopg.Connection, database_url: str, nats_server: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several batches, the last one short.
    monkeypatch.setattr(stream_headers, "BATCH", 7)

    async def delete(client: Client) -> None:
        for version in (1, 2, 12, EVENTS):
            await client.jetstream().delete_msg(STREAM, version)

    asked(nats_server.url, delete)
    found = check_stream(database_url, nats_server.url)
    assert [sentence.split(" is ")[0] for sentence in found.violations] == ["version 12", f"version {EVENTS}"]
    assert all("not in the stream" in sentence for sentence in found.violations)
    assert found.checked == EVENTS - 2
    assert found.note == f"versions 3 to {EVENTS}"

    async def consumers(client: Client) -> int:
        return len(await client.jetstream().consumers_info(STREAM))

    # Nothing is left behind on the server.
    assert asked(nats_server.url, consumers) == 0


def test_a_long_stream_is_sampled_in_blocks_with_both_ends() -> None:
    versions = range(5, 1_234_567)
    blocks = stream_check.chosen_versions(versions)
    assert blocks[0].start == versions.start
    assert blocks[-1].stop == versions.stop
    assert sum(map(len, blocks)) == stream_check.COMPARED_MAX
    assert all(before.stop <= after.start for before, after in itertools.pairwise(blocks))
    few = range(5, 5 + stream_check.COMPARED_MAX)
    assert stream_check.chosen_versions(few) == [few]
    barely = stream_check.chosen_versions(range(5, 6 + stream_check.COMPARED_MAX))
    assert barely[-1].stop == 6 + stream_check.COMPARED_MAX
    assert all(before.stop <= after.start for before, after in itertools.pairwise(barely))
