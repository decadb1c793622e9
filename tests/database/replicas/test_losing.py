"""Standbys that die, freeze, lead, or are of another history: each costs a bounded wait once, and serves nothing it must not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from berth.process import database_connections
from migrations.roles import Role
from orchestrator.database.replicas.reads import read_replicated
from orchestrator.database.replicas.rules import Cause
from orchestrator.database.response_versions import ResponseVersion
from orchestrator.database.transactions import Reading
from orchestrator.problems import DatabaseUnavailable
from tests.at_length import at_length
from tests.database.replicas.pairs import (
    PENDING_EVENT,
    SOURCE,
    Pair,
    Reader,
    add_event,
    address_of,
    heads_asked,
    reading,
    replayed,
    run,
    running_pair,
    written,
)
from tests.support.failover.cluster import Member
from tests.support.waiting import wait_for


@pytest.fixture
def pair(server_directory: Path) -> Iterator[Pair]:
    """Servers that a test may end."""
    with running_pair(server_directory) as running:
        yield running


async def read_while(reader: Reader, end: object) -> list[bool]:
    """Where a read ends that runs on the standby while `end` is called: on the standby, then on the primary."""
    assert callable(end)
    sources: list[bool] = []

    async def read(reading: Reading) -> None:
        sources.append((await reading.execute(SOURCE)).one().on_standby)
        if len(sources) == 1:
            await asyncio.to_thread(end)
            await reading.execute(SOURCE)

    asked = ResponseVersion(at_least=0, is_stated=True)
    await read_replicated(reader.database.for_request(asked), read)
    return sources


@pytest.mark.parametrize("how", at_length(["killed", "frozen"], ["killed"]))
def test_a_lost_standby_costs_the_reads_in_flight_and_no_others(pair: Pair, how: str) -> None:
    async def scene() -> None:
        async with reading(address_of(pair.a), address_of(pair.b, standby=True)) as reader:
            await reader.wait_fit()
            assert await read_while(reader, pair.b.kill if how == "killed" else pair.b.freeze) == [True, False]
            with heads_asked() as asked:
                for _ in range(5):
                    assert (await reader.read(0))[0] is False
                assert not asked, "nothing is asked of a standby that was lost"
            await reader.watch.examine()
            assert reader.replica.cause is Cause.UNREACHABLE
            assert (await reader.read(0))[0] is False
            pair.b.kill()
            await asyncio.to_thread(pair.b.start)
            await reader.wait_fit()
            assert (await reader.read(0))[0]

    asyncio.run(scene())


@pytest.mark.full
def test_the_silence_of_a_standby_is_not_the_primarys(pair: Pair) -> None:
    """After the primary's, each new connection would first ask how many commits wait for a standby."""

    async def scene() -> tuple[list[bool], bool]:
        async with reading(address_of(pair.a), address_of(pair.b, standby=True)) as reader:
            await reader.wait_fit()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(database_connections, "_silent_at", float("-inf"))
                sources = await read_while(reader, pair.b.freeze)
                return sources, database_connections.was_silent()

    assert asyncio.run(scene()) == ([True, False], False)


def test_a_standby_that_was_promoted_serves_nothing(pair: Pair) -> None:
    """It has events then that the primary does not have."""

    async def scene() -> tuple[int, list[int]]:
        async with reading(address_of(pair.a), address_of(pair.b, standby=True)) as reader:
            await reader.wait_fit()
            on_standby, version, _ = await reader.read(0)
            assert on_standby
            await asyncio.to_thread(pair.b.promote)
            add_event(pair.b)
            found = [(await reader.read(0))[1]]
            await reader.watch.examine()
            assert not any(standby.is_fit for standby in reader.replica.standbys.values())
            return version, [*found, (await reader.read(0))[1]]

    version, found = asyncio.run(scene())
    assert found == [version, version]


@pytest.mark.full
def test_a_standby_that_was_promoted_deposes_no_primary(pair: Pair) -> None:
    """A drill or a clone: its timeline is newer, and the primary still is the one that every process writes to."""
    pair.b.promote()
    only = address_of(pair.b).partition("&target")[0]

    async def scene() -> tuple[Cause, bool]:
        async with reading(address_of(pair.a), only) as reader:
            for _ in range(2):
                await reader.watch.examine()
        async with reading(address_of(pair.a), only) as anew:
            return reader.replica.cause, (await anew.read())[0]

    assert asyncio.run(scene()) == (Cause.UNREACHABLE, False)


@pytest.mark.full
def test_a_standby_of_a_deposed_primary_serves_nothing(pair: Pair) -> None:
    """`b` leads on a new timeline, and `c` follows `a`, which still runs: neither its address nor its identifier says so."""
    pair.c.start()
    pair.b.promote()

    async def scene() -> list[tuple[Cause, bool]]:
        async with reading(address_of(pair.b), address_of(pair.c, standby=True)) as reader:
            found = []
            for prepare in (_nothing, _accept):
                prepare(pair)
                await reader.watch.examine()
                found.append((reader.replica.cause, (await reader.read(0))[0]))
            return found

    assert asyncio.run(scene()) == [(Cause.OTHER_LEADER, False), (Cause.OTHER_LEADER, False)]


def _nothing(pair: Pair) -> None:
    del pair


def _accept(pair: Pair) -> None:
    """The new primary is accepted as the log's writer, as an operator or a relay does."""
    run(pair.b, "update log_head set leader_id = postgres_leader_id()")


@pytest.mark.full
def test_the_standby_of_an_accepted_new_primary_serves_again(pair: Pair) -> None:
    pair.c.start()
    primary, standbys = address_of(pair.a, pair.b, pair.c), address_of(pair.a, pair.b, pair.c, standby=True)

    async def scene() -> list[bool]:
        async with reading(primary, standbys) as reader:
            await reader.wait_fit()
            sources = [(await reader.read(0))[0]]
            await asyncio.to_thread(pair.a.kill)
            await asyncio.to_thread(pair.b.promote)
            await asyncio.to_thread(pair.c.follow, pair.b)
            await reader.watch.examine()
            _accept(pair)
            wait_for(lambda: replayed(pair.c) >= written(pair.b), "the other standby follows")
            reader.replica.distrust()  # as the loss of a request's connection to the primary does
            await reader.wait_fit()
            version = add_event(pair.b)
            wait_for(lambda: replayed(pair.c) >= written(pair.b), "it has the event")
            on_standby, found, _ = await reader.read(version)
            assert found == version
            return [*sources, on_standby]

    assert asyncio.run(scene()) == [True, True]


@pytest.mark.full
def test_a_copy_of_the_installation_serves_nothing(pair: Pair, tmp_path: Path) -> None:
    """A data directory that is copied and started keeps identifier, timeline and leader: only its content differs."""
    pair.b.kill()
    (pair.b.directory / "standby.signal").unlink()
    pair.b.start()
    copy_of_copy = Member(pair.b.directory.parents[1], "d", pair.b.password, pair.b)
    try:
        copy_of_copy.start()

        async def scene() -> list[tuple[Cause, bool]]:
            async with reading(address_of(pair.a), address_of(copy_of_copy, standby=True)) as reader:
                found = []
                for server in (pair.a, pair.b):
                    add_event(server)
                wait_for(lambda: replayed(copy_of_copy) >= written(pair.b), "the other standby follows")
                await reader.watch.examine()
                found.append((reader.replica.cause, (await reader.read(0))[0]))
                add_event(pair.b)
                wait_for(lambda: replayed(copy_of_copy) >= written(pair.b), "the other standby follows")
                await reader.watch.examine()
                found.append((reader.replica.cause, (await reader.read(0))[0]))
                return found

        assert asyncio.run(scene()) == [(Cause.OTHER_INSTALLATION, False), (Cause.AHEAD, False)]
    finally:
        copy_of_copy.kill()


def test_a_standby_outside_the_quorum_is_ahead_until_the_primary_acknowledges(pair: Pair) -> None:
    """A commit waits for another standby, and this one has it: nothing says that its history is another one."""

    async def scene() -> tuple[list[tuple[Cause, bool]], list[list[object]], tuple[bool, int, int | None]]:
        pair.a.wait_for_commits_of(pair.b)
        async with reading(address_of(pair.a), address_of(pair.b, standby=True)) as reader:
            await reader.wait_fit()
            version = add_event(pair.a)
            run(pair.a, PENDING_EVENT)
            pair.a.set("synchronous_standby_names", "ANY 1 (absent)")
            wait_for(lambda: run(pair.a, "show synchronous_standby_names") == [("ANY 1 (absent)",)], "commits wait")
            waiting = asyncio.create_task(asyncio.to_thread(run, pair.a, "select log_advance(1000)"))
            await asyncio.to_thread(wait_for, lambda: head_of(pair.b) == version + 1, "the standby has the commit")
            found, said = [], []
            try:
                for _ in range(2):
                    with capture_logs() as lines:
                        await reader.watch.examine()
                    said.append([line.get("cause") for line in lines if line["event"] == "standbys_unfit"])
                    found.append((reader.replica.cause, (await reader.read(0))[0]))
                assert head_of(pair.a) == version
            finally:
                pair.a.set("synchronous_standby_names", "")
                await waiting
            await reader.wait_fit()
            return found, said, await reader.read(version + 1)

    found, said, (on_standby, _, _) = asyncio.run(scene())
    assert found == [(Cause.AHEAD, False)] * 2
    assert said == [[], ["ahead"]], "a round later it is still so"
    assert on_standby


def head_of(member: Member) -> int:
    """The newest version that a server shows."""
    return int(run(member, "select version from log_head")[0][0])


@pytest.mark.full  # quicker: test_judging.py
def test_a_standby_of_an_earlier_schema_serves_nothing(pair: Pair) -> None:
    """Migrations run on the primary first; the standby serves again when it has replayed them."""

    async def scene() -> None:
        async with reading(address_of(pair.a), address_of(pair.b, standby=True)) as reader:
            await reader.wait_fit()
            newest = run(pair.a, "select version_num from alembic_version")[0][0]
            run(pair.a, "update alembic_version set version_num = '0001'")
            pair.catch_up()
            pair.pause()
            try:
                run(pair.a, f"update alembic_version set version_num = '{newest}'")
                await reader.watch.examine()
                assert (reader.replica.cause, (await reader.read(0))[0]) == (Cause.SCHEMA, False)
            finally:
                pair.resume()
            pair.catch_up()
            await reader.watch.examine()
            assert (await reader.read(0))[0]

    asyncio.run(scene())


@pytest.mark.full  # quicker: test_judging.py
def test_a_database_without_a_schema_serves_nothing(pair: Pair) -> None:
    run(pair.a, "create database other")
    pair.catch_up()

    async def scene() -> tuple[Cause, bool]:
        other = address_of(pair.b, standby=True).replace("/berth?", "/other?")
        async with reading(address_of(pair.a), other) as reader:
            await reader.watch.examine()
            return reader.replica.cause, (await reader.read(0))[0]

    assert asyncio.run(scene()) == (Cause.SCHEMA, False)


@pytest.mark.full  # quicker: test_commands.py
def test_a_role_without_privileges_serves_nothing(pair: Pair) -> None:
    run(pair.a, f"create role blind login password '{pair.a.password}'")
    run(pair.a, "grant select on restores to blind")  # which each connection reads first
    pair.catch_up()

    async def scene() -> tuple[Cause, bool]:
        blind = address_of(pair.b, standby=True).replace(f"//{Role.PUBLIC_API}:", "//blind:")
        async with reading(address_of(pair.a), blind) as reader:
            await reader.watch.examine()
            return reader.replica.cause, (await reader.read(0))[0]

    assert asyncio.run(scene()) == (Cause.UNPRIVILEGED, False)


async def _lose_the_primary(pair: Pair, reader: Reader) -> None:
    async with reader.database.reading() as lost:
        run(pair.a, "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'test'")
        await lost.execute("select 1")


def test_a_lost_connection_to_the_primary_stops_reads_of_standbys(pair: Pair) -> None:
    """Another server may lead then: the standby is compared with it first."""

    async def scene() -> list[bool]:
        async with reading(address_of(pair.a), address_of(pair.b, standby=True)) as reader:
            await reader.wait_fit()
            sources = [(await reader.read(0))[0]]
            with pytest.raises(DatabaseUnavailable):
                await _lose_the_primary(pair, reader)
            sources.append((await reader.read(0))[0])
            await reader.watch.examine()
            return [*sources, (await reader.read(0))[0]]

    assert asyncio.run(scene()) == [True, False, True]
