"""The audit on JetStream: every row once, in order, as `berth audit export` prints it, over a NATS that dies and comes back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import nats
import psycopg
import pytest
from nats.js.api import StreamConfig

from berth.local.servers import LocalNats, LocalPostgres
from berth.process.nats_connections import nats_options
from tests.api.calling import new_tenant
from tests.audit_stream.jetstream import STREAM, sequences, stored, to
from tests.audit_stream.processes import append, stream_of, streaming
from tests.client.deployment import Deployment
from tests.support.shell import Shell, bare, deployment
from tests.support.waiting import wait_for

__all__ = ["bare", "deployment"]


def test_every_row_arrives_once_in_order_and_the_position_is_saved(
    database_url: str, database: psycopg.Connection[Any], nats_with_users: LocalNats, tmp_path: Path
) -> None:
    first = append(database, 700)
    with streaming(database_url, tmp_path, **to(nats_with_users)) as streamer:
        wait_for(lambda: stream_of(database, "nats")[0] == first, "the backlog")
        newest = append(database, 3)
        wait_for(lambda: stream_of(database, "nats")[0] == newest, "the new rows")
        wait_for(lambda: streamer.metric("berth_audit_stream_position", target="nats") == newest, "the metric")
        assert streamer.metric("berth_audit_stream_backlog_rows", target="nats") == 0
        assert streamer.metric("berth_audit_stream_sent_total", target="nats") == newest
        assert streamer.stop() == 0
    found = stored(nats_with_users)
    assert [document["metadata"]["sequence"] for _, document in found] == list(range(1, newest + 1))
    hashes: dict[int, str] = dict(database.execute("select sequence, encode(hash, 'hex') from audit_chain").fetchall())
    assert [name for name, _ in found] == [f"audit-{number}-{hashes[number][:16]}" for number in range(1, newest + 1)]
    assert database.execute("select leased_by from audit_streams").fetchall() == [(None,)], "the lease is given back"


@pytest.mark.full
def test_a_batch_that_is_repeated_is_stored_once(
    database_url: str, database: psycopg.Connection[Any], nats_with_users: LocalNats, tmp_path: Path
) -> None:
    """As after a kill between the acknowledgement and the save: half of the repeated batch is new."""
    append(database, 6)
    with streaming(database_url, tmp_path, **to(nats_with_users)) as streamer:
        wait_for(lambda: stream_of(database, "nats")[0] == 6, "the rows")
        assert streamer.stop() == 0
    with database.transaction():
        database.execute("set local session_replication_role = replica")
        database.execute("update audit_streams set sequence = 2")
    append(database, 4)
    with streaming(database_url, tmp_path, **to(nats_with_users)):
        wait_for(lambda: stream_of(database, "nats")[0] == 10, "the repetition")
    assert sequences(nats_with_users) == list(range(1, 11))


@pytest.mark.full
def test_nats_goes_away_and_comes_back_and_commands_wait_for_nothing(
    database_url: str, database: psycopg.Connection[Any], nats_with_users: LocalNats, tmp_path: Path
) -> None:
    with streaming(database_url, tmp_path, **to(nats_with_users)) as streamer:
        append(database, 5)
        wait_for(lambda: stream_of(database, "nats")[0] == 5, "the first rows")
        nats_with_users.stop()
        append(database, 600)
        wait_for(lambda: stream_of(database, "nats")[1], "the failure on record")
        wait_for(
            lambda: streamer.metric("berth_audit_stream_backlog_rows", target="nats") == 600, "the backlog's metric"
        )
        assert streamer.metric("berth_audit_stream_failures_total", target="nats", reason="connect") >= 1
        assert streamer.metric("berth_audit_stream_sending", target="nats") == 0
        assert streamer.metric("berth_audit_stream_backlog_seconds", target="nats") > 0
        nats_with_users.start()
        wait_for(lambda: stream_of(database, "nats") == (605, False, None), "the backlog")
        assert streamer.lines("audit_stream_failed")[0]["target"] == "nats"
        assert streamer.lines("audit_stream_recovered")
    assert sequences(nats_with_users) == list(range(1, 606))
    assert "-audit-password" not in (tmp_path / "streamer.log").read_text(), "the address has a password"


@pytest.mark.full
def test_two_processes_send_every_row_once_and_one_takes_over_from_the_other(
    database_url: str, database: psycopg.Connection[Any], nats_with_users: LocalNats, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with (
        streaming(database_url, tmp_path / "a", **to(nats_with_users)) as one,
        streaming(database_url, tmp_path / "b", **to(nats_with_users)) as other,
    ):
        append(database, 50)
        wait_for(lambda: stream_of(database, "nats")[0] == 50, "the rows")
        sending = {streamer: streamer.metric("berth_audit_stream_sending", target="nats") for streamer in (one, other)}
        assert sorted(sending.values()) == [0, 1], "one has the lease"
        (holder,) = [streamer for streamer, sends in sending.items() if sends]
        holder.process.kill()
        append(database, 50)
        wait_for(lambda: stream_of(database, "nats")[0] == 100, "the other takes over")
    assert sequences(nats_with_users) == list(range(1, 101))


@pytest.mark.full
def test_a_row_that_is_too_large_for_nats_is_sent_without_its_detail(
    database_url: str, database: psycopg.Connection[Any], nats_with_users: LocalNats, tmp_path: Path
) -> None:
    database.execute(
        "insert into audit (principal_kind, principal_id, action, subject, detail)"
        " values ('system', 'test', 'thing.turn', 'things/1', jsonb_build_object('x', repeat('y', 1100000)))"
    )
    append(database, 1)
    with streaming(database_url, tmp_path, **to(nats_with_users)):
        wait_for(lambda: stream_of(database, "nats")[0] == 2, "both rows")
    (_, large), (_, small) = stored(nats_with_users)
    assert "detail" not in large["unmapped"]
    assert large["unmapped"]["detail_omitted_bytes"] == 1_100_008
    assert small["unmapped"]["detail"]["n"] == 1


@pytest.mark.full
def test_a_stream_that_would_lose_rows_is_refused(
    database_url: str, database: psycopg.Connection[Any], nats_with_users: LocalNats, tmp_path: Path
) -> None:
    async def make() -> None:
        options = nats_options(nats_with_users.url_of("audit"), "test", inbox="audit")
        client = await nats.connect(**options, allow_reconnect=False)
        await client.jetstream().add_stream(StreamConfig(name=STREAM, subjects=["berth.audit"], no_ack=True))
        await client.close()

    asyncio.run(make())
    append(database, 1)
    with streaming(database_url, tmp_path, **to(nats_with_users)):
        wait_for(lambda: stream_of(database, "nats")[1], "the refusal")
    position, _, why = stream_of(database, "nats")
    assert position == 0
    assert why == "the stream BERTH_AUDIT cannot hold the audit: it does not acknowledge (no_ack)"


@pytest.mark.full
def test_the_objects_are_the_lines_of_the_export(
    deployment: Deployment, postgres_server: LocalPostgres, nats_with_users: LocalNats, tmp_path: Path
) -> None:
    append(deployment.database, 2)
    tenant = new_tenant(deployment.admin)
    assert tenant.call("GET", "/admin/nodes").status_code == 403
    done = Shell(deployment.address, deployment.admin.key).run("audit export")
    exported = [json.loads(line) for line in done.stdout.splitlines()]
    url = postgres_server.url(deployment.database.info.dbname)
    with streaming(url, tmp_path, **to(nats_with_users)):
        wait_for(lambda: stream_of(deployment.database, "nats")[0] >= len(exported), "the rows")
    assert [document for _, document in stored(nats_with_users)][: len(exported)] == exported
