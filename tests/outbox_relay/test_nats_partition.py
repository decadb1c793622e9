"""A server of NATS is cut off from the two others: they publish on, and it catches up (issue 15, section 2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from berth.local.nats_cluster import NatsMember
from tests.outbox_relay.conftest import StartRelay
from tests.outbox_relay.relays import events_all_the_time, head_version, require_stream_is_log, stream_end
from tests.support.failover.nats_servers import LinkedServers, linked_servers
from tests.support.waiting import wait_for

REPLICAS = {"BERTH_LOG_STREAM_REPLICAS": "3"}
EVENTS = 50


@pytest.fixture
def servers(server_directory: Path, tmp_path: Path) -> Iterator[LinkedServers]:
    with linked_servers(server_directory / tmp_path.name) as running:
        yield running


@pytest.fixture
def nats_url(servers: LinkedServers) -> str:
    """In place of the one server of the other tests."""
    return servers.url


def end(members: list[NatsMember]) -> int:
    """The stream's last sequence as these servers have it."""
    return max(stream_end(member.url) for member in members)


@pytest.mark.full
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_publishing_goes_on_at_two_servers_while_one_is_cut_off(
    start_relay: StartRelay, database: psycopg.Connection, database_url: str, servers: LinkedServers, role: str
) -> None:
    """Clients reach the one that is cut off: it must not acknowledge anything, and its stream has no other event afterwards."""
    with events_all_the_time(database_url):
        relay = start_relay(ready=False, **REPLICAS)
        wait_for(lambda: end(servers.members) >= EVENTS, "events are published", 90)
        leader = servers.leader()
        lonely = leader if role == "leader" else servers.followers()[0]
        others = [member for member in servers.members if member is not lonely]
        with servers.cut_off(lonely):
            before = end(others)
            wait_for(lambda: end(others) >= before + 4 * EVENTS, "publishing goes on", 120)
            assert not servers.current(), "the one that is cut off has not got it"
        wait_for(servers.current, "the one that was cut off has caught up", 90)
    assert len(require_stream_is_log(lonely.url, database)) == head_version(database)
    assert relay.process.poll() is None
