"""SIGTERM to each process that waits for a standby: it has ended within 20 s, and PostgreSQL was asked to cancel nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from berth.local.authority import Authority, ensure_authority
from berth.local.processes import (
    ChildProcess,
    Endpoints,
    ProcessPlan,
    issuer_plan,
    relay_plan,
    webhooks_plan,
    worker_plan,
)
from berth.local.servers import LocalNats, free_port
from tests.api.processes import public_process
from tests.database.unconfirmed.scene import (
    cancelled_waits,
    kill_standbys,
    prepared,
    replicated,
    return_standbys,
    waiting_commits,
)
from tests.databases import as_roles
from tests.support.failover.cluster import Cluster
from tests.support.waiting import wait_for

STOPPED_SECONDS_MAX = 20.0
Plan = Callable[[Endpoints, Authority, int], ProcessPlan]
PLANS: dict[str, Plan] = {
    "relay": lambda endpoints, _, port: relay_plan(endpoints, port),
    "webhook sender": webhooks_plan,
    "issuer": issuer_plan,
    "worker": worker_plan,
}


@pytest.fixture(scope="module")
def cluster(server_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three servers whose commits wait for a standby, with events that no relay has sequenced."""
    with replicated(server_directory) as running:
        with public_process(running.a.url(), tmp_path_factory.mktemp("api")) as http:
            prepared(http, running)["create"].send()
        yield running


@contextmanager
def started(plan: ProcessPlan, directory: Path) -> Iterator[ChildProcess]:
    """A process of a plan, whether or not it is ready; killed at the end."""
    process = ChildProcess(plan, directory / "process.log")
    process.spawn()
    try:
        yield process
    finally:
        process.kill()


@pytest.mark.quick("webhook sender")
@pytest.mark.parametrize("name", PLANS)
def test_a_process_that_waits_for_a_standby_is_stopped_and_cancels_nothing(
    cluster: Cluster, nats_server: LocalNats, tmp_path: Path, name: str
) -> None:
    authority = ensure_authority(tmp_path, "berth.local")
    url = cluster.a.url()
    endpoints = Endpoints(url, nats_server.url, "127.0.0.1:1", free_port(), free_port(), as_roles(url))
    ended_waits = cancelled_waits(cluster.a)
    kill_standbys(cluster)
    with started(PLANS[name](endpoints, authority, free_port()), tmp_path) as process:
        wait_for(lambda: waiting_commits(cluster.a) >= 1, "it waits for a standby")
        process.terminate()
        assert process.process is not None
        process.process.wait(STOPPED_SECONDS_MAX)
        assert waiting_commits(cluster.a) >= 1
    return_standbys(cluster)
    assert cancelled_waits(cluster.a) == ended_waits
