"""A stream on three servers of NATS is the log, whichever of them die, freeze or lose their disks (issue 15, section 2)."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.outbox_relay.conftest import StartRelay
from tests.outbox_relay.relays import (
    RelayProcess,
    events_all_the_time,
    head_version,
    leave_events,
    require_stream_is_log,
    stream_end,
)
from tests.support.failover.nats_servers import NatsServers, nats_servers, wipe
from tests.support.waiting import wait_for

REPLICAS = {"BERTH_LOG_STREAM_REPLICAS": "3"}


@pytest.fixture
def servers(server_directory: Path, tmp_path: Path) -> Iterator[NatsServers]:
    with nats_servers(server_directory / tmp_path.name) as running:
        yield running


@pytest.fixture
def nats_url(servers: NatsServers) -> str:
    """In place of the one server of the other tests."""
    return servers.url


def published(servers: NatsServers, version: int) -> None:
    """Wait until the stream has `version`."""
    wait_for(lambda: end(servers) >= version, f"NATS has version {version}", 90)


def end(servers: NatsServers) -> int:
    """The stream's last sequence as the first server that answers has it."""
    return max(stream_end(member.url) for member in servers.members)


def relay_and_some_events(start_relay: StartRelay, servers: NatsServers) -> RelayProcess:
    relay = start_relay(ready=False, **REPLICAS)
    published(servers, 50)
    return relay


@pytest.mark.full
def test_publishing_goes_on_when_the_leader_of_the_stream_is_killed(
    start_relay: StartRelay, database: psycopg.Connection, database_url: str, servers: NatsServers
) -> None:
    with events_all_the_time(database_url):
        relay = relay_and_some_events(start_relay, servers)
        leader = servers.leader()
        leader.kill()
        published(servers, end(servers) + 200)
        leader.start()
        wait_for(servers.current, "the killed server has caught up", 60)
    assert len(require_stream_is_log(leader.url, database)) == head_version(database)
    assert relay.process.poll() is None


@pytest.mark.full
def test_publishing_goes_on_when_the_leader_is_frozen_and_it_stays_behind_when_it_returns(
    start_relay: StartRelay, database: psycopg.Connection, database_url: str, servers: NatsServers
) -> None:
    with events_all_the_time(database_url):
        relay_and_some_events(start_relay, servers)
        leader = servers.leader()
        assert leader.process is not None
        os.kill(leader.process.pid, signal.SIGSTOP)
        other = next(member for member in servers.members if member is not leader)
        before = stream_end(other.url)
        wait_for(lambda: stream_end(other.url) >= before + 200, "publishing goes on", 90)
        os.kill(leader.process.pid, signal.SIGCONT)
        wait_for(servers.current, "the frozen server has caught up", 60)
    assert len(require_stream_is_log(leader.url, database)) == head_version(database)


@pytest.mark.full
def test_publishing_waits_for_two_of_three_and_reports_it(
    start_relay: StartRelay, database: psycopg.Connection, database_url: str, servers: NatsServers
) -> None:
    with events_all_the_time(database_url):
        relay = relay_and_some_events(start_relay, servers)
        dead = servers.followers()
        for member in dead:
            member.kill()
        wait_for(lambda: relay.ok().get("publishing") == "waiting for nats", "the relay says that it waits", 60)
        leave_events(database, [{"while": "two are dead"}])
        for member in dead:
            member.start()
        published(servers, head_version(database))
    wait_for(servers.current, "each server has all of the stream", 90)
    assert len(require_stream_is_log(servers.members[0].url, database)) == head_version(database)


@pytest.mark.full
def test_publishing_goes_on_after_all_three_are_killed_at_once(
    start_relay: StartRelay, database: psycopg.Connection, database_url: str, servers: NatsServers
) -> None:
    with events_all_the_time(database_url):
        relay_and_some_events(start_relay, servers)
        for member in servers.members:
            member.kill()
        servers.start()
        published(servers, head_version(database))
    wait_for(servers.current, "each server has all of the stream", 90)
    assert len(require_stream_is_log(servers.members[0].url, database)) == head_version(database)


@pytest.mark.full
def test_nothing_is_lost_with_the_disks_of_two_servers(
    start_relay: StartRelay, database: psycopg.Connection, database_url: str, servers: NatsServers
) -> None:
    with events_all_the_time(database_url):
        relay_and_some_events(start_relay, servers)
        wait_for(servers.current, "each server has all of the stream", 60)
        replaced = servers.followers()
        for member in replaced:
            member.kill()
        for member in replaced:
            wipe(member)
            member.start()
        published(servers, head_version(database))
        wait_for(servers.current, "each server has all of the stream again", 90)
    assert len(require_stream_is_log(replaced[0].url, database)) == head_version(database)


@pytest.mark.full
def test_a_stream_lost_on_all_servers_is_made_anew_from_the_log(
    start_relay: StartRelay, database: psycopg.Connection, database_url: str, servers: NatsServers
) -> None:
    with events_all_the_time(database_url):
        relay_and_some_events(start_relay, servers)
        for member in servers.members:
            member.kill()
        for member in servers.members:
            wipe(member)
        servers.start()
        published(servers, head_version(database))
    wait_for(servers.current, "each server has all of the stream", 90)
    assert len(require_stream_is_log(servers.members[0].url, database)) == head_version(database)


@pytest.mark.full
def test_stores_of_an_earlier_moment_are_brought_up_to_the_log(
    start_relay: StartRelay, database: psycopg.Connection, database_url: str, servers: NatsServers, tmp_path: Path
) -> None:
    """As if the disks of all servers had been restored from snapshots: versions keep their places."""
    events = [{"number": number} for number in range(300)]
    leave_events(database, events)
    start_relay(ready=False, **REPLICAS)
    published(servers, 300)
    wait_for(servers.current, "each server has all of the stream", 60)
    for member in servers.members:
        member.stop()
        shutil.copytree(member.directory, tmp_path / member.name)
    servers.start()
    leave_events(database, events)
    published(servers, 600)
    for member in servers.members:
        member.kill()
        wipe(member)
        shutil.copytree(tmp_path / member.name, member.directory)
    servers.start()
    published(servers, 600)
    wait_for(servers.current, "each server has all of the stream again", 90)
    assert len(require_stream_is_log(servers.members[0].url, database)) == 600
