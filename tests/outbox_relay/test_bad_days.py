"""Two things are lost at once: nothing that was acknowledged is, and publishing goes on by itself."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from tests.outbox_relay.conftest import StartRelay
from tests.outbox_relay.relays import leave_events, require_stream_is_log
from tests.support.failover.cluster import Cluster, Member, running_cluster
from tests.support.failover.nats_servers import NatsServers, nats_servers
from tests.support.waiting import wait_for

REPLICAS = {"BERTH_LOG_STREAM_REPLICAS": "3"}
EVENTS = 40


@pytest.fixture
def cluster(server_directory: Path) -> Iterator[Cluster]:
    """Three servers of PostgreSQL whose commits wait for a standby."""
    with running_cluster(server_directory / f"cluster-{uuid.uuid4().hex[:8]}") as running:
        running.a.wait_for_commits_of(running.b, running.c)
        yield running


@pytest.fixture
def servers(server_directory: Path, tmp_path: Path) -> Iterator[NatsServers]:
    with nats_servers(server_directory / tmp_path.name) as running:
        yield running


@pytest.fixture
def nats_url(servers: NatsServers) -> str:
    """In place of the one server of the other tests."""
    return servers.url


def leave(member: Member, first: int) -> None:
    """Commit events with these numbers, each acknowledged."""
    with psycopg.connect(member.url(), autocommit=True) as connection:
        for number in range(first, first + EVENTS):
            leave_events(connection, [{"number": number}])


def published_numbers(member: Member, nats_url: str) -> list[int]:
    """What the stream holds, which is the log of this server."""
    with psycopg.connect(member.url(), autocommit=True) as connection:
        return [document["data"]["number"] for document in require_stream_is_log(nats_url, connection)]


@pytest.mark.full
def test_the_primary_and_the_leader_of_the_stream_die_in_the_same_moment(
    cluster: Cluster, servers: NatsServers, start_relay: StartRelay
) -> None:
    relay = start_relay(database_url=cluster.url, **REPLICAS)
    leave(cluster.a, 0)
    leader = servers.leader()
    other = next(member for member in servers.members if member is not leader)

    def end() -> None:
        leader.kill()
        cluster.a.kill()

    new = cluster.fail_over(end)
    leave(new, EVENTS)
    wait_for(lambda: bool(relay.ok().get("ok")), "publishing goes on", 90)
    assert published_numbers(new, other.url) == list(range(2 * EVENTS))
    leader.start()
    wait_for(servers.current, "the killed server of NATS has caught up", 90)
    assert published_numbers(new, leader.url) == list(range(2 * EVENTS))


@pytest.mark.full
def test_both_standbys_lag_when_the_primary_dies(
    cluster: Cluster, servers: NatsServers, start_relay: StartRelay
) -> None:
    """They have received what was acknowledged and replayed none of it; the one that is promoted replays it first."""
    relay = start_relay(database_url=cluster.url, **REPLICAS)
    for standby in (cluster.b, cluster.c):
        with psycopg.connect(standby.url(), autocommit=True) as connection:
            connection.execute("select pg_wal_replay_pause()")
    leave(cluster.a, 0)
    assert [shown(standby) for standby in (cluster.b, cluster.c)] == [0, 0]
    new = cluster.fail_over(cluster.a.kill)
    other = cluster.b if new is cluster.c else cluster.c
    # Replay that goes on may cancel the statement that let it.
    with psycopg.connect(other.url(), autocommit=True) as connection, suppress(psycopg.errors.SerializationFailure):
        connection.execute("select pg_wal_replay_resume()")
    leave(new, EVENTS)
    wait_for(lambda: bool(relay.ok().get("ok")), "publishing goes on", 90)
    assert published_numbers(new, servers.members[0].url) == list(range(2 * EVENTS))


def shown(member: Member) -> int:
    """How many events this server shows."""
    counted = "select (select count(*) from outbox) + (select count(*) from log)"
    with psycopg.connect(member.url(), autocommit=True) as connection:
        row = connection.execute(counted).fetchone()
    assert row is not None
    return int(row[0])
