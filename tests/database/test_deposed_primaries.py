"""A deposed primary that returns without its manager serves nothing, also where an address names it first."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from berth.process.deposed_servers import other_servers
from migrations.roles import Role
from orchestrator.database.transactions import Database
from orchestrator.problems import DatabaseUnavailable, OutcomeUnknown
from outbox_relay.problems import ServerUnavailable
from outbox_relay.reading import LogReader
from tests.support.failover.cluster import Cluster, Member, pools, running_cluster
from tests.support.waiting import wait_for

_LEADER = "select postgres_leader_id()"


@pytest.fixture
def cluster(server_directory: Path) -> Iterator[Cluster]:
    """Three servers whose commits wait for a standby."""
    with running_cluster(server_directory / f"cluster-{uuid.uuid4().hex[:8]}") as running:
        running.a.wait_for_commits_of(running.b, running.c)
        yield running


async def leader_of(database: Database) -> str:
    """Which server answers, after any refusals."""
    for _ in range(200):
        with suppress(DatabaseUnavailable, OutcomeUnknown):
            async with database.reading() as reading:
                return str((await reading.execute(_LEADER)).scalar_one())
    raise AssertionError("no server answers")


def leader_at(member: Member, role: str = "postgres") -> str:
    """What this server is, as this role reads it."""
    with psycopg.connect(member.url().replace("postgres:", f"{role}:", 1), autocommit=True) as connection:
        row = connection.execute(_LEADER).fetchone()
    assert row is not None
    return str(row[0])


def test_a_deposed_primary_serves_nothing_although_it_is_listed_first(cluster: Cluster) -> None:
    async def scene() -> tuple[list[str], str]:
        database = pools(cluster.url)
        before = await leader_of(database)
        new = await asyncio.to_thread(cluster.fail_over, cluster.a.kill)
        assert await leader_of(database) == leader_at(new) != before
        # By hand, without a manager that would demote it: as a primary that knows of no other.
        await asyncio.to_thread(cluster.a.start)
        assert leader_at(cluster.a) == before
        anew = pools(cluster.url)
        answers = [await leader_of(database), await leader_of(anew)]
        async with LogReader.connected(cluster.url.replace("/berth?", "/berth?connect_timeout=5&")) as reader:
            answers.append((await reader.read_status()).leader_id)
        alone = pools(cluster.a.url())
        with pytest.raises(DatabaseUnavailable):
            async with alone.reading():
                pass
        with pytest.raises(ServerUnavailable, match="deposed"):
            async with LogReader.connected(cluster.a.url()):
                pass
        for pool in (database, anew, alone):
            await pool.close()
        return answers, leader_at(new)

    answers, new = asyncio.run(scene())
    assert answers == [new] * len(answers)
    wait_for(lambda: sessions(cluster.a) == 0, "no process keeps a connection to the deposed server")


def test_standbys_and_promoted_servers_name_the_timeline_that_they_have(cluster: Cluster) -> None:
    def names(member: Member) -> set[str]:
        return {leader_at(member), leader_at(member, Role.PUBLIC_API)}

    (before,) = names(cluster.a)
    assert [names(standby) for standby in (cluster.b, cluster.c)] == [{before}] * 2
    new = cluster.fail_over(cluster.a.kill)
    (after,) = names(new)
    assert after == before.replace("-00000001", "-00000002") != before
    other = cluster.b if new is cluster.c else cluster.c
    wait_for(lambda: leader_at(other) == after, "the standby follows the new timeline")
    with (
        psycopg.connect(new.url(), autocommit=True) as primary,
        psycopg.connect(other.url(), autocommit=True) as standby,
    ):

        def restarted() -> bool:
            primary.execute("checkpoint")
            standby.execute("checkpoint")
            return names(other) == {after}

        wait_for(restarted, "a role without rights on the receiver learns of it with a restart point")


def sessions(member: Member) -> int:
    """How many connections of the pools this server has."""
    with psycopg.connect(member.url(), autocommit=True) as connection:
        row = connection.execute("select count(*) from pg_stat_activity where application_name = 'test'").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize(
    ("conninfo", "options", "left"),
    [
        ("postgresql:///d?host=a,b,c&port=1,2,3", {}, {"host": "b,c", "port": "2,3"}),
        ("", {"host": "a,b", "port": "1,2"}, {"host": "b", "port": "2"}),
        ("postgresql:///d?host=b,a&port=1", {}, {"host": "b", "port": "1"}),
        ("postgresql:///d?host=b,a", {"port": None}, {"host": "b", "port": ""}),
        ("postgresql:///d?host=a,a&port=1,2", {}, {"host": "a", "port": "2"}),
        ("postgresql://a:1/d", {}, None),
        ("postgresql:///d?host=x,b&port=1,2", {}, None),
        ("postgresql:///d?host=a,b&hostaddr=127.0.0.1,127.0.0.2&port=1,2", {}, None),
    ],
)
def test_the_next_server_of_an_address(conninfo: str, options: dict[str, object], left: dict[str, str] | None) -> None:
    assert other_servers(conninfo, options, "a", 1) == left
