"""A relay started after the primary was lost distinguishes failover from restore, and continues after a failover alone."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from outbox_relay.rebuilding import Order
from tests.outbox_relay.conftest import StartRelay
from tests.outbox_relay.relays import leave_events, require_stream_is_log, stream_end
from tests.support.failover.cluster import Cluster, Member, running_cluster
from tests.support.rebuilding import run
from tests.support.waiting import wait_for

DOUBT = "select log_failover_doubt()"


@pytest.fixture
def cluster(server_directory: Path) -> Iterator[Cluster]:
    """Three servers that a test may end."""
    with running_cluster(server_directory / f"cluster-{uuid.uuid4().hex[:8]}") as running:
        yield running


def leave(member: Member, count: int) -> None:
    """Commit events on this server, and give them their versions."""
    with psycopg.connect(member.url(), autocommit=True) as connection:
        leave_events(connection, [{"number": number} for number in range(count)])
        connection.execute("select log_advance(1000)")


def doubt(member: Member) -> str | None:
    """What speaks against a failover to this server; None if nothing does."""
    with psycopg.connect(member.url(), autocommit=True) as connection:
        row = connection.execute(DOUBT).fetchone()
    assert row is not None
    return None if row[0] is None else str(row[0])


def head(member: Member) -> int:
    """The newest version that this server shows."""
    with psycopg.connect(member.url(), autocommit=True) as connection:
        row = connection.execute("select version from log_head").fetchone()
    assert row is not None
    return int(row[0])


def require_all_published(member: Member, nats_url: str, count: int) -> None:
    """The stream is the log of this server, and that holds so many events."""
    with psycopg.connect(member.url(), autocommit=True) as connection:
        assert len(require_stream_is_log(nats_url, connection)) == count


def lose_the_relay(cluster: Cluster, start_relay: StartRelay, nats_url: str) -> None:
    """Five events are published; then the only relay dies."""
    cluster.a.wait_for_commits_of(cluster.b, cluster.c)
    relay = start_relay(database_url=cluster.url)
    leave(cluster.a, 5)
    require_all_published(cluster.a, nats_url, 5)
    relay.kill()


def test_a_relay_that_was_started_since_continues_after_a_failover(
    cluster: Cluster, start_relay: StartRelay, nats_url: str
) -> None:
    lose_the_relay(cluster, start_relay, nats_url)
    leave(cluster.a, 2)
    new = cluster.fail_over(cluster.a.kill)
    leave(new, 3)
    relay = start_relay(database_url=cluster.url)
    require_all_published(new, nats_url, 10)
    assert relay.metric("berth_relay_timelines_resumed_total") == 1


def test_a_relay_that_was_started_since_stops_at_a_restored_server(
    cluster: Cluster, start_relay: StartRelay, nats_url: str
) -> None:
    """The log has all that NATS has, on a new timeline, and lacks two events that were acknowledged and not published."""
    lose_the_relay(cluster, start_relay, nats_url)
    wait_for(lambda: head(cluster.b) == 5, "the standby has replayed all")
    cluster.b.kill()
    leave(cluster.a, 2)
    cluster.a.kill()
    # What a restore to the end of a base backup's log leaves: recovery without a primary, then a new timeline.
    (cluster.b.directory / "standby.signal").unlink()
    (cluster.b.directory / "recovery.signal").touch()
    with (cluster.b.directory / "postgresql.auto.conf").open("a") as settings:
        settings.write("restore_command = 'false'\nsynchronous_standby_names = 'ANY 1 (a, c)'\n")
    cluster.b.start()
    wait_for(lambda: doubt(cluster.b) == "unstreamed", "recovery ends")
    assert head(cluster.b) == 5
    relay = start_relay(ready=False, database_url=cluster.b.url())
    wait_for(lambda: "this Postgres was restored or copied" in str(relay.ok().get("stopped")), "publishing stops")
    cluster.b.set("synchronous_standby_names", "")
    leave(cluster.b, 5)
    assert stream_end(nats_url) == 5
    done = run(cluster.b.url(), nats_url, Order(accept_timeline=True))
    assert done.accepted is not None
    relay.wait_until_ok()
    require_all_published(cluster.b, nats_url, 10)


def test_a_relay_that_was_started_since_stops_where_nats_lost_its_stream(
    cluster: Cluster, start_relay: StartRelay, nats_url: str
) -> None:
    cluster.a.wait_for_commits_of(cluster.b, cluster.c)
    relay = start_relay(database_url=cluster.url)
    relay.kill()
    leave(cluster.a, 2)
    cluster.fail_over(cluster.a.kill)
    relay = start_relay(ready=False, database_url=cluster.url)
    wait_for(lambda: "NATS holds no version" in str(relay.ok().get("stopped")), "publishing stops")
    assert stream_end(nats_url) == 0


def promoted(cluster: Cluster) -> Member:
    """The standby that is promoted when the primary is lost, after commits that waited for one."""
    cluster.a.wait_for_commits_of(cluster.b, cluster.c)
    leave(cluster.a, 3)
    return cluster.fail_over(cluster.a.kill)


def without_quorum(cluster: Cluster) -> Member:
    """Commits wait for a standby only since the promotion, also those that are sequenced before its acceptance."""
    leave(cluster.a, 3)
    wait_for(lambda: head(cluster.b) == head(cluster.c) == 3, "the standbys have replayed all")
    new = cluster.fail_over(cluster.a.kill)
    leave(new, 3)
    return new


def restarted(cluster: Cluster) -> Member:
    """The promoted server does not know any more how it became the primary."""
    new = promoted(cluster)
    new.stop()
    new.start()
    return new


def promoted_twice(cluster: Cluster) -> Member:
    """Nothing is known of how the first of two timelines began."""
    new = promoted(cluster)
    other = cluster.b if new is cluster.c else cluster.c
    leave(new, 1)
    wait_for(lambda: head(other) == 4, "the other standby follows")
    new.kill()
    other.promote()
    return other


def targeted(cluster: Cluster) -> Member:
    """A standby that was to end its recovery at a restore point: it has received later commits and does not replay them."""
    cluster.b.set("recovery_target_name", "before")
    cluster.b.stop()
    cluster.b.start()
    cluster.a.wait_for_commits_of(cluster.b, cluster.c)
    leave(cluster.a, 3)
    with psycopg.connect(cluster.a.url(), autocommit=True) as connection:
        connection.execute("select pg_create_restore_point('before')")
    paused = "select pg_get_wal_replay_pause_state() = 'paused'"
    with psycopg.connect(cluster.b.url(), autocommit=True) as connection:
        wait_for(lambda: connection.execute(paused).fetchone() == (True,), "recovery reaches its target")
    leave(cluster.a, 2)
    cluster.a.kill()
    cluster.b.promote()
    assert head(cluster.b) == 3
    return cluster.b


def never_connected(cluster: Cluster) -> Member:
    """A copy that was started as a standby while there was no primary, and promoted."""
    cluster.a.wait_for_commits_of(cluster.b, cluster.c)
    leave(cluster.a, 3)
    wait_for(lambda: head(cluster.b) == 3, "the standby has replayed all")
    cluster.b.kill()
    cluster.a.kill()
    cluster.b.start()
    asked = "select from pg_stat_get_wal_receiver() union all select where pg_last_wal_receive_lsn() is not null"
    with psycopg.connect(cluster.b.url(), autocommit=True) as connection:
        wait_for(lambda: connection.execute(asked).fetchone() is not None, "the receiver tries to connect")
    cluster.b.promote()
    return cluster.b


@pytest.mark.full
@pytest.mark.parametrize(
    ("scene", "word"),
    [
        (promoted, None),
        (without_quorum, "unconfirmed"),
        (restarted, "unstreamed"),
        (promoted_twice, "timelines"),
        (targeted, "targeted"),
        (never_connected, "unstreamed"),
    ],
)
def test_what_speaks_against_a_failover(cluster: Cluster, scene: Callable[[Cluster], Member], word: str | None) -> None:
    assert doubt(scene(cluster)) == word
