"""A commit that waits for a standby when its caller is cancelled, or its process is stopped: it goes on waiting, unseen."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from berth.process.database_connections import abandon_statements
from orchestrator.problems import OutcomeUnknown
from tests.api.calling import problem
from tests.api.processes import public_process, stoppable_public_process
from tests.database.unconfirmed.scene import (
    VERBS,
    cancelled_waits,
    kill_standbys,
    prepared,
    replicated,
    return_standbys,
    waiting_commits,
)
from tests.support.failover.cluster import Cluster
from tests.support.failover.writes import TABLE, WRITES, connected, rows_of
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def cluster(server_directory: Path) -> Iterator[Cluster]:
    """Three servers whose commits wait for a standby, with a table."""
    with replicated(server_directory) as running:
        with psycopg.connect(running.a.url(), autocommit=True) as connection:
            connection.execute(TABLE)
        yield running


@pytest.mark.parametrize("how", ["cancelled", "abandoned"])
@pytest.mark.parametrize("kind", WRITES)
def test_a_commit_that_its_caller_leaves_is_not_cancelled(cluster: Cluster, kind: str, how: str) -> None:
    writer, ended_waits = f"{kind} {how}", cancelled_waits(cluster.a)

    async def scene() -> BaseException | None:
        async with connected(cluster, cluster.a.url(), answer_seconds_max=60.0) as database:
            await WRITES[kind](database, writer, 1)
            await asyncio.to_thread(kill_standbys, cluster)
            writing = asyncio.ensure_future(WRITES[kind](database, writer, 2))
            await asyncio.to_thread(wait_for, lambda: waiting_commits(cluster.a) == 1, "the commit waits")
            if how == "cancelled":
                writing.cancel()
            else:
                assert abandon_statements(0.0) == 1
            await asyncio.wait([writing])
            assert (writer, 2) not in rows_of(cluster.a), "no other session sees what no standby has"
            assert waiting_commits(cluster.a) == 1
            await asyncio.to_thread(return_standbys, cluster)
            await WRITES[kind](database, writer, 3)
            return asyncio.CancelledError() if writing.cancelled() else writing.exception()

    outcome = asyncio.run(scene())
    assert isinstance(outcome, asyncio.CancelledError if how == "cancelled" else OutcomeUnknown)
    assert {(writer, number) for number in (1, 2, 3)} <= rows_of(cluster.a)
    assert cancelled_waits(cluster.a) == ended_waits


def test_a_stopped_process_cancels_no_commit_and_its_clients_get_their_answers(
    cluster: Cluster, tmp_path: Path
) -> None:
    ended_waits = cancelled_waits(cluster.a)
    soon = {"BERTH_GRACEFUL_STOP_SECONDS": "2"}
    with (
        stoppable_public_process(cluster.a.url(), tmp_path / "a", soon) as (http, process),
        public_process(cluster.a.url(), tmp_path / "b") as other,
        ThreadPoolExecutor(len(VERBS)) as elsewhere,
    ):
        acts = prepared(http, cluster)
        kill_standbys(cluster)
        sent = [elsewhere.submit(acts[verb].send) for verb in VERBS]
        wait_for(lambda: waiting_commits(cluster.a) >= len(VERBS), "every commit waits for a standby")
        process.terminate()
        for answer in sent:
            problem(answer.result(), 503, "outcome_unknown")
        process.wait_ended()
        assert waiting_commits(cluster.a) >= len(VERBS), "the process that ended has cancelled none"
        assert [acts[verb].times_done(cluster.a) for verb in VERBS] == [0] * len(VERBS)
        return_standbys(cluster)
        for act in acts.values():
            again = act.send(other)
            assert (again.status_code, again.headers["idempotent-replayed"]) == (act.status, "true")
            assert act.times_done(cluster.a) == 1
    assert cancelled_waits(cluster.a) == ended_waits
