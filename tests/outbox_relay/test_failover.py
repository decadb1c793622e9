"""The primary is lost and a standby promoted: publishing goes on by itself where nothing was lost, and nowhere else."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from outbox_relay.problems import ServerUnavailable
from outbox_relay.reading import LogReader
from outbox_relay.rebuilding import Order
from tests.outbox_relay.conftest import StartRelay
from tests.outbox_relay.relays import RelayProcess, leave_events, log_rows, require_stream_is_log, stream_end
from tests.support.failover.cluster import Cluster, Member, running_cluster
from tests.support.rebuilding import run
from tests.support.waiting import wait_for


@pytest.fixture
def cluster(server_directory: Path) -> Iterator[Cluster]:
    """Three servers that a test may end."""
    with running_cluster(server_directory / f"cluster-{uuid.uuid4().hex[:8]}") as running:
        yield running


def leave(member: Member, count: int) -> None:
    """Commit events on this server."""
    with psycopg.connect(member.url(), autocommit=True) as connection:
        leave_events(connection, [{"number": number} for number in range(count)])


def require_all_published(member: Member, nats_url: str, count: int) -> None:
    """The stream is the log of this server, and that holds so many events."""
    with psycopg.connect(member.url(), autocommit=True) as connection:
        assert len(require_stream_is_log(nats_url, connection)) == count


def head_of(member: Member) -> tuple[int, str, str]:
    """Version and writer of this server's log, and what the server is."""
    with psycopg.connect(member.url(), autocommit=True) as connection:
        row = connection.execute("select version, leader_id, postgres_leader_id() from log_head").fetchone()
    assert row is not None
    return row


def stopped(relay: RelayProcess) -> str:
    """Why publishing is stopped; empty while it is not."""
    return str(relay.ok().get("stopped", {}).get("why", ""))


def test_publishing_goes_on_by_itself_after_a_failover_under_quorum_commit(
    cluster: Cluster, start_relay: StartRelay, nats_url: str
) -> None:
    cluster.a.wait_for_commits_of(cluster.b, cluster.c)
    relay = start_relay(database_url=cluster.url)
    leave(cluster.a, 50)
    require_all_published(cluster.a, nats_url, 50)
    with psycopg.connect(cluster.a.url(), autocommit=True) as connection:
        fence = connection.execute("select nextval('fences')").fetchone()
    _, first_writer, _ = head_of(cluster.a)
    new = cluster.fail_over(cluster.a.kill)
    leave(new, 30)
    require_all_published(new, nats_url, 80)
    relay.wait_until_ok()
    _, writer, here = head_of(new)
    assert writer == here != first_writer
    leave(new, 1)
    require_all_published(new, nats_url, 81)
    require_epochs(new, first_writer, here)
    assert relay.metric("berth_relay_timelines_resumed_total") == 1
    assert '"timeline_resumed"' in relay.log.read_text()
    with psycopg.connect(new.url(), autocommit=True) as connection:
        audited = connection.execute(
            "select detail ->> 'was', detail ->> 'now' from audit where action = 'events.resume_timeline'"
        ).fetchall()
        assert audited == [(first_writer, here)]
        raised = connection.execute("select nextval('fences')").fetchone()
        assert raised is not None
        assert fence is not None
        assert raised[0] > fence[0] + 1_000_000
        assert not [row for row in log_rows(connection) if row["event_type"] == "log.version_lost"]


def require_epochs(member: Member, first: str, second: str) -> None:
    """Each row names the server that sequenced it, and the resumed timeline is another epoch."""
    with psycopg.connect(member.url(), autocommit=True) as connection:
        rows = [str(row["leader_id"]).rpartition("-") for row in log_rows(connection)]
        (epoch,) = connection.execute("select epoch from log_head").fetchone() or ("",)
    assert [leader for leader, _, _ in rows] == [first] * 50 + [second] * 31
    epochs = [found for _, _, found in rows]
    assert epochs[0] != epochs[-1] == epoch
    assert len(set(epochs)) == 2


@pytest.mark.full
def test_an_asynchronous_standby_that_is_promoted_waits_for_an_operator(
    cluster: Cluster, start_relay: StartRelay, nats_url: str
) -> None:
    relay = start_relay(database_url=cluster.url)
    leave(cluster.a, 20)
    require_all_published(cluster.a, nats_url, 20)
    wait_for(lambda: head_of(cluster.b)[0] == 20, "the standby has replayed all")
    cluster.a.kill()
    cluster.b.promote()
    wait_for(lambda: "synchronous_standby_names was empty before" in stopped(relay), "publishing stops")
    leave(cluster.b, 5)
    assert relay.process.poll() is None
    assert stream_end(nats_url) == 20
    done = run(cluster.url, nats_url, Order(accept_timeline=True))
    assert done.accepted is not None
    assert (done.accepted.moved, done.accepted.lost) == (0, 0)
    relay.wait_until_ok()
    require_all_published(cluster.b, nats_url, 25)


@pytest.mark.full
def test_a_lagging_standby_that_is_promoted_waits_for_an_operator(
    cluster: Cluster, start_relay: StartRelay, nats_url: str
) -> None:
    cluster.a.wait_for_commits_of(cluster.b, cluster.c)
    relay = start_relay(database_url=cluster.url)
    leave(cluster.a, 20)
    wait_for(lambda: head_of(cluster.b)[0] == 20, "the standby has replayed all")
    cluster.b.kill()
    leave(cluster.a, 10)
    require_all_published(cluster.a, nats_url, 30)
    cluster.a.kill()
    cluster.b.start()
    cluster.b.set("synchronous_standby_names", "ANY 1 (a, c)")
    cluster.b.promote()
    wait_for(lambda: "this relay has seen version 30, and the log ends at 20" in stopped(relay), "publishing stops")
    # The other standby has more than the one that was promoted and cannot follow it: nothing would be confirmed.
    cluster.b.set("synchronous_standby_names", "")
    leave(cluster.b, 15)
    wait_for(lambda: head_of(cluster.b)[0] == 35, "the log passes the end of the stream")
    cluster.b.set("synchronous_standby_names", "ANY 1 (a, c)")
    wait_for(lambda: "another event than NATS" in stopped(relay), "publishing stays stopped")
    assert stream_end(nats_url) == 30


@pytest.mark.full
def test_each_condition_of_a_timeline_that_is_continued(cluster: Cluster) -> None:
    cluster.a.wait_for_commits_of(cluster.b, cluster.c)
    leave(cluster.a, 5)
    with psycopg.connect(cluster.a.url(), autocommit=True) as connection:
        connection.execute("select log_advance(10)")
        row = connection.execute("select postgres_leader_id(), event_id::text from log where version = 5").fetchone()
        assert row is not None
        here, event_id = row
        earlier = here.partition("-")[0] + "-00000000"

        def resume(leader: str, version: int, event: str | None) -> tuple[str | None, str]:
            connection.execute("update log_head set leader_id = %s", (leader,))
            said = connection.execute("select log_resume_timeline(%s, %s)", (version, event)).fetchone()
            writer = connection.execute("select leader_id from log_head").fetchone()
            assert said is not None
            assert writer is not None
            return said[0], writer[0]

        assert resume("1-00000000", 5, event_id) == ("system", "1-00000000")
        assert resume(earlier, 6, str(uuid.uuid4())) == ("behind", earlier)
        assert resume(earlier, 5, str(uuid.uuid4())) == ("differs", earlier)
        assert resume(earlier, 5, None) == ("differs", earlier)
        cluster.a.set("synchronous_standby_names", "")
        wait_for(lambda: resume(earlier, 5, event_id) == ("asynchronous", earlier), "the setting is read")
        cluster.a.wait_for_commits_of(cluster.b, cluster.c)
        wait_for(lambda: resume(earlier, 5, event_id) == (None, here), "the timeline is continued")


@pytest.mark.full
def test_one_barrier_waits_at_a_time(cluster: Cluster) -> None:
    cluster.a.wait_for_commits_of(cluster.b, cluster.c)
    cluster.b.kill()
    cluster.c.kill()

    async def scene() -> None:
        for why in ("consuming input failed", "a commit waits for a standby", "a commit waits for a standby"):
            async with LogReader.connected(cluster.a.url(), answer_seconds_max=0.5) as reader:
                with pytest.raises(ServerUnavailable, match=why):
                    await reader.commit_barrier()

    asyncio.run(scene())
    cluster.b.start()

    async def passes() -> None:
        async with LogReader.connected(cluster.a.url()) as reader:
            await reader.commit_barrier()

    wait_for(lambda: not waits_for_a_standby(cluster.a), "the standby has it")
    asyncio.run(passes())


@pytest.mark.full
def test_what_no_standby_has_is_not_published(cluster: Cluster, start_relay: StartRelay, nats_url: str) -> None:
    """The primary is restarted while a commit waits for a standby, and shows it before any standby has it."""
    cluster.a.wait_for_commits_of(cluster.b, cluster.c)
    cluster.b.kill()
    cluster.c.kill()
    connection = psycopg.connect(cluster.a.url(), autocommit=True)
    # Committed here, and seen by no other session until a standby has it.
    connection.pgconn.send_query(
        b"insert into outbox (event_type, correlation_id, subject, payload) "
        b"values ('test.happened', uuidv7(), 'things/1', '{}'); select log_advance(1)"  # one transaction
    )
    wait_for(lambda: waits_for_a_standby(cluster.a), "the commit waits")
    cluster.a.kill()
    connection.pgconn.finish()
    cluster.a.start()
    assert head_of(cluster.a)[0] == 1
    relay = start_relay(ready=False, database_url=cluster.url)
    wait_for(lambda: waits_for_a_standby(cluster.a), "the barrier waits")
    assert stream_end(nats_url) == 0
    cluster.b.start()
    relay.wait_until_ok()
    require_all_published(cluster.a, nats_url, 1)


def waits_for_a_standby(member: Member) -> bool:
    """Whether a commit on this server waits for a standby."""
    with psycopg.connect(member.url(), autocommit=True) as connection:
        found = connection.execute("select from pg_stat_activity where wait_event = 'SyncRep'").fetchone()
    return found is not None


@pytest.mark.full
def test_a_frozen_primary_is_abandoned(cluster: Cluster, start_relay: StartRelay, nats_url: str) -> None:
    cluster.a.wait_for_commits_of(cluster.b, cluster.c)
    relay = start_relay(database_url=cluster.url)
    leave(cluster.a, 10)
    require_all_published(cluster.a, nats_url, 10)
    new = cluster.fail_over(cluster.a.freeze)
    leave(new, 10)
    require_all_published(new, nats_url, 20)
    assert '"postgres_silent"' in relay.log.read_text()
    relay.wait_until_ok()
