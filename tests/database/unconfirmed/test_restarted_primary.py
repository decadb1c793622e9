"""What a primary that crashed shows, while commits waited for a standby, is acknowledged once a standby has it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.api.calling import problem
from tests.api.processes import public_process
from tests.database.unconfirmed.scene import kill_standbys, prepared, replicated, return_standbys, waiting_commits
from tests.support.failover.cluster import Cluster, Member
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def cluster(server_directory: Path) -> Iterator[Cluster]:
    """Three servers whose commits wait for a standby."""
    with replicated(server_directory) as running:
        yield running


def restart(member: Member) -> None:
    """End the server as the loss of its machine would, and start it again."""
    member.kill()
    member.start()


def crash_a_session(member: Member) -> None:
    """End one session's process: PostgreSQL ends the others and recovers, and its postmaster goes on."""
    with psycopg.connect(member.url(), autocommit=True) as connection:
        psutil.Process(connection.info.backend_pid).kill()
        with suppress(psycopg.OperationalError):
            connection.execute("select 1")

    def is_back() -> bool:
        with suppress(psycopg.OperationalError), psycopg.connect(member.url()):
            return True
        return False

    wait_for(is_back, "the server has recovered")


CRASHES = {"restarted": restart, "recovered": crash_a_session}


@pytest.mark.quick("restarted")
@pytest.mark.parametrize("how", CRASHES)
def test_a_commit_that_only_the_primary_has_is_acknowledged_once_a_standby_has_it(
    cluster: Cluster, tmp_path: Path, how: str
) -> None:
    with public_process(cluster.a.url(), tmp_path / "api") as http, ThreadPoolExecutor(1) as elsewhere:
        act = prepared(http, cluster)["create"]
        kill_standbys(cluster)
        sent = elsewhere.submit(act.send)
        wait_for(lambda: waiting_commits(cluster.a) >= 1, "the commit waits for a standby")
        CRASHES[how](cluster.a)
        problem(sent.result(), 503, "outcome_unknown")
        assert act.times_done(cluster.a) == 1, "the primary shows what no standby has"
        again = problem(act.send(), 503, "outcome_unknown")
        assert again["outcome"] == "unknown"
        assert "no standby has confirmed" in again["detail"]
        problem(act.tenant.call("GET", "/allocations"), 503, "outcome_unknown")
        return_standbys(cluster)
        wait_for(lambda: act.send().status_code == act.status, "a standby has it")
        repeated = act.send()
        assert (repeated.status_code, repeated.headers["idempotent-replayed"]) == (act.status, "true")
        assert act.times_done(cluster.a) == 1
