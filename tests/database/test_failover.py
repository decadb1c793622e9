"""The pools when the primary dies, freezes, or has no standby that confirms: what callers get, and that nothing is lost."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from berth.process.database_connections import AnsweringConnection
from orchestrator.database.calls import COMMITS_WAITING_MAX
from orchestrator.database.transactions import Database
from orchestrator.problems import DatabaseUnavailable, OutcomeUnknown, Overloaded
from tests.at_length import at_length
from tests.support.failover.cluster import Cluster, Member, running_cluster
from tests.support.failover.writes import (
    ANSWER_SECONDS,
    TABLE,
    WRITES,
    Write,
    connected,
    rows_of,
    write_at_once,
    write_by_call,
)
from tests.support.waiting import wait_for

REFUSALS = (DatabaseUnavailable, OutcomeUnknown, Overloaded)


@pytest.fixture
def cluster(server_directory: Path) -> Iterator[Cluster]:
    """Three servers with a table, whose commits wait for a standby."""
    with running_cluster(server_directory / f"cluster-{uuid.uuid4().hex[:8]}") as running:
        with psycopg.connect(running.a.url(), autocommit=True) as connection:
            connection.execute(TABLE)
        running.a.wait_for_commits_of(running.b, running.c)
        wait_for(lambda: _has_table(running.b) and _has_table(running.c), "both standbys have the table")
        yield running


def _has_table(member: Member) -> bool:
    with psycopg.connect(member.url(), autocommit=True) as connection:
        return connection.execute("select to_regclass('written')").fetchone() != (None,)


class Writers:
    """Two writers of each kind that write one row after the other until they are stopped, whatever they get."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stopping = False
        self.acknowledged: set[tuple[str, int]] = set()
        self.outcomes: Counter[str] = Counter()
        self._tasks = [
            asyncio.create_task(self._write(f"{kind} {number}", kind)) for kind in WRITES for number in range(2)
        ]

    async def _write(self, writer: str, kind: str) -> None:
        number = 0
        while not self._stopping:
            number += 1
            try:
                await WRITES[kind](self._database, writer, number)
            except REFUSALS as refusal:
                self.outcomes[type(refusal).__name__] += 1
            else:
                self.acknowledged.add((writer, number))

    async def each_writes(self, rows: int) -> None:
        """Return when each writer has had so many more rows acknowledged."""
        wanted = {writer: count + rows for writer, count in self._counts().items()}

        def all_wrote() -> bool:
            now = self._counts()
            return all(now[writer] >= count for writer, count in wanted.items())

        await asyncio.to_thread(wait_for, all_wrote, "every writer goes on")

    def _counts(self) -> dict[str, int]:
        found = Counter(writer for writer, _ in list(self.acknowledged))
        return {f"{kind} {number}": found[f"{kind} {number}"] for kind in WRITES for number in range(2)}

    async def stop(self) -> None:
        """Let each end what it does."""
        self._stopping = True
        await asyncio.gather(*self._tasks)


@pytest.mark.parametrize("how", at_length(["killed", "frozen"], ["killed"]))
def test_the_pools_go_on_after_a_failover_and_no_acknowledged_write_is_lost(cluster: Cluster, how: str) -> None:
    async def scene() -> Writers:
        async with connected(cluster) as database:
            writers = Writers(database)
            await writers.each_writes(20)
            end = cluster.a.kill if how == "killed" else cluster.a.freeze
            await asyncio.to_thread(cluster.fail_over, end)
            await writers.each_writes(20)
            await writers.stop()
            return writers

    writers = asyncio.run(scene())
    assert writers.acknowledged <= rows_of(cluster.primary)
    assert writers.outcomes.keys() <= {refusal.__name__ for refusal in REFUSALS}
    assert writers.outcomes["OutcomeUnknown"] > 0


@pytest.mark.quick("transaction")
@pytest.mark.parametrize("kind", WRITES)
def test_a_commit_that_no_standby_confirms_is_an_unknown_outcome_and_is_not_cancelled(
    cluster: Cluster, kind: str
) -> None:
    async def scene() -> None:
        async with connected(cluster) as database:
            await WRITES[kind](database, "before", 1)
            cluster.b.kill()
            cluster.c.kill()
            with pytest.raises(OutcomeUnknown):
                await WRITES[kind](database, "waiting", 1)

    asyncio.run(scene())
    assert ("waiting", 1) not in rows_of(cluster.a), "no other session sees what no standby has"
    cluster.b.start()
    wait_for(lambda: ("waiting", 1) in rows_of(cluster.a), "the commit ends when a standby has it")
    wait_for(lambda: ("waiting", 1) in rows_of(cluster.b), "and the standby has it")


@pytest.mark.full
@pytest.mark.quick("transaction")
@pytest.mark.parametrize("kind", WRITES)
def test_a_refusal_of_a_standby_ends_its_connections(cluster: Cluster, kind: str) -> None:
    async def scene() -> None:
        async with connected(cluster, cluster.b.url()) as database:
            for number in range(3):
                with pytest.raises(DatabaseUnavailable):
                    await WRITES[kind](database, "refused", number)
                await asyncio.to_thread(wait_for, lambda: sessions(cluster.b) == 0, "the connection is ended")

    asyncio.run(scene())
    assert rows_of(cluster.a) == set()


async def until_refused(database: Database, numbers: Iterator[int]) -> None:
    """Write until no connection is to be had. Raises `DatabaseUnavailable`."""
    for _ in range(20):
        with suppress(OutcomeUnknown, Overloaded):
            await write_by_call(database, "waiting", next(numbers))


@pytest.mark.full
def test_commits_that_wait_for_a_standby_take_a_bounded_number_of_sessions(cluster: Cluster) -> None:
    async def scene() -> int:
        async with connected(cluster, answer_seconds_max=0.2) as database:
            await write_by_call(database, "before", 1)
            cluster.b.kill()
            cluster.c.kill()
            numbers = iter(range(10_000))

            async def write_for_ever() -> None:
                while True:
                    with suppress(*REFUSALS):
                        await write_at_once(database, "waiting", next(numbers))

            writers = [asyncio.create_task(write_for_ever()) for _ in range(4)]
            await asyncio.to_thread(wait_for, lambda: sessions(cluster.a) >= COMMITS_WAITING_MAX, "the bound")
            with pytest.raises(DatabaseUnavailable):
                await until_refused(database, numbers)
            most = sessions(cluster.a)
            for writer in writers:
                writer.cancel()
            await asyncio.gather(*writers, return_exceptions=True)
            cluster.b.start()
            await asyncio.to_thread(wait_for, lambda: sessions(cluster.a) < COMMITS_WAITING_MAX, "the commits end")
            await write_by_call(database, "after", 1)
            return most

    assert asyncio.run(scene()) <= COMMITS_WAITING_MAX + 8
    assert ("after", 1) in rows_of(cluster.a)


def test_a_connection_whose_answer_comes_with_the_shutdown_is_not_used_again(database_url: str) -> None:
    async def scene() -> bool:
        connection = await AnsweringConnection.connect(database_url, autocommit=True)
        # The timer of a process that was paused runs before the answer that has arrived is taken.
        connection.is_shut = True
        await connection.execute("select 1")
        return connection.closed

    assert asyncio.run(scene())


def sessions(member: Member) -> int:
    """How many connections of the pools this server has."""
    with psycopg.connect(member.url(), autocommit=True) as connection:
        row = connection.execute("select count(*) from pg_stat_activity where application_name = 'test'").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.full
def test_a_connection_that_idles_to_a_frozen_primary_is_tested_for_a_short_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a separate bound the test of an idle connection would wait for as long as a statement may take."""
    monkeypatch.setattr("orchestrator.database.calls.TRUSTED_IDLE_SECONDS", -1.0)

    async def scene() -> None:
        async with connected(cluster, answer_seconds_max=1_000.0) as database:
            for kind, write in WRITES.items():
                await write(database, kind, 1)
            await asyncio.to_thread(cluster.fail_over, cluster.a.freeze)
            for kind, write in WRITES.items():
                await until_written(database, kind, write)

    asyncio.run(scene())
    assert rows_of(cluster.primary) >= {(kind, 2) for kind in WRITES}


async def until_written(database: Database, kind: str, write: Write) -> None:
    """Write the second row of this kind, again after each refusal."""
    for _ in range(100):
        with suppress(*REFUSALS):
            await write(database, kind, 2)
            return


@pytest.mark.full
def test_a_statement_that_takes_long_and_is_answered_is_not_ended(cluster: Cluster) -> None:
    async def scene() -> int:
        async with connected(cluster) as database, database.transaction() as tx:
            found = await tx.execute("select 1 from pg_sleep(:seconds)", {"seconds": ANSWER_SECONDS / 2})
            return int(found.scalar_one())

    assert asyncio.run(scene()) == 1
