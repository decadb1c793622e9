"""Allocations go on while servers of a NATS cluster die one after another (issue 15, section 2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.local.servers import LocalTemporal
from tests.allocations.invariants import violations
from tests.allocations.seeding import create_many, seed
from tests.support.failover.nats_servers import NatsServers, nats_servers
from tests.support.waiting import wait_for
from tests.support.worker_processes import Processes, play_nodes, release_all

pytestmark = pytest.mark.full


@pytest.fixture
def servers(server_directory: Path, tmp_path: Path) -> Iterator[NatsServers]:
    with nats_servers(server_directory / tmp_path.name) as running:
        yield running


@pytest.fixture
def processes(
    database_url: str, servers: NatsServers, temporal_server: LocalTemporal, tmp_path: Path
) -> Iterator[Processes]:
    started = Processes(database_url, servers.members[0], temporal_server.address, tmp_path)
    started.nats_url = servers.url
    yield started
    started.stop()


def test_allocations_become_active_and_released_while_each_server_is_killed_in_turn(
    processes: Processes, servers: NatsServers
) -> None:
    url = processes.url
    seeded = seed(url)
    processes.start_relay(log_stream_replicas=3)
    processes.start_worker(rescue_seconds=600, rescue_patience_seconds=600)
    for member in list(servers.members):
        (made,) = create_many(url, seeded, 1)
        member.kill()
        play_nodes(url, {made: "active"})
        release_all(url, seeded, [made])
        play_nodes(url, {made: "released"})
        member.start()
        wait_for(servers.current, "the killed server has caught up", 60)
    assert processes.metric("berth_rescued_total") == 0, "events arrived, so no sweeper had to act"
    assert violations(url) == []
