"""Calls of SQL functions over their own connections: one is replaced when it died, and their number is bounded."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AbstractAsyncContextManager

import psycopg
import pytest

from orchestrator.database import calls, pools, reserve
from orchestrator.database.transactions import Database
from orchestrator.problems import DatabaseUnavailable, OutcomeUnknown, Overloaded
from tests.allocations.seeding import make_context

CREATES = calls.CallGroup.CREATES
RESERVATIONS = calls.CallGroup.RESERVATIONS
PID = "select pg_backend_pid() where %(one)s = 1"


async def call(database: Database, statement: str = PID) -> int:
    """The value of one call."""
    async with database.function_call(CREATES) as started:
        return int(await started.value(statement, {"one": 1}))


def end_session(database_url: str, pid: int) -> None:
    """Terminate a backend and wait until it is gone."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        row = connection.execute("select pg_terminate_backend(%s, 10000)", (pid,)).fetchone()
    assert row == (True,)


async def lose(database_url: str, starting: AbstractAsyncContextManager[calls.FunctionCall]) -> None:
    """Lose the call's connection before its statement is sent."""
    async with starting as started:
        end_session(database_url, await started.value("select pg_backend_pid()", {}))
        await started.value("select 1", {})


def test_a_connection_that_died_while_idle_is_replaced(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "TRUSTED_IDLE_SECONDS", 0.0)

    async def story() -> tuple[int, int]:
        database = make_context(database_url).database
        first = await call(database)
        end_session(database_url, first)
        second = await call(database)
        await database.close()
        return first, second

    first, second = asyncio.run(story())
    assert first != second


def test_a_loss_during_a_call_leaves_its_outcome_unknown(database_url: str) -> None:
    async def story() -> None:
        database = make_context(database_url).database
        lost: list[str] = []
        database.when_lost(lambda: lost.append("lost"))
        first = await call(database)
        end_session(database_url, first)
        with pytest.raises(OutcomeUnknown):
            await call(database)
        assert lost == ["lost"]
        assert await call(database) != first
        await database.close()

    asyncio.run(story())


def test_a_call_that_cannot_connect_did_nothing() -> None:
    async def story() -> None:
        database = make_context("postgresql://postgres@127.0.0.1:1/none").database
        with pytest.raises(DatabaseUnavailable):
            await call(database)

    asyncio.run(story())


def test_calls_beyond_the_bound_are_refused(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "POOL_TIMEOUT_SECONDS", 0.05)

    async def story() -> None:
        database = make_context(database_url, pool_size=2).database
        async with database.function_call(CREATES):
            with pytest.raises(Overloaded):
                await call(database)
        await call(database)
        await database.close()

    asyncio.run(story())


def test_a_cancelled_call_leaves_no_busy_connection(database_url: str) -> None:
    async def story() -> None:
        database = make_context(database_url, pool_size=2).database
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await call(database, "select 1 from pg_sleep(30) where %(one)s = 1")
        async with asyncio.timeout(5):
            await call(database)
        await database.close()

    asyncio.run(story())


def test_a_loss_makes_the_idle_connections_tested(database_url: str) -> None:
    async def story() -> None:
        database = make_context(database_url, pool_size=4).database
        async with database.function_call(CREATES) as one, database.function_call(CREATES) as other:
            pids = [int(await started.value(PID, {"one": 1})) for started in (one, other)]
        for pid in pids:
            end_session(database_url, pid)
        with pytest.raises(OutcomeUnknown):
            await call(database)
        assert await call(database) not in pids
        await database.close()

    asyncio.run(story())


def test_calls_of_one_group_take_no_connection_of_another(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancels that wait for a node's lock keep no create waiting."""
    monkeypatch.setattr(pools, "POOL_TIMEOUT_SECONDS", 0.05)

    async def story() -> None:
        database = make_context(database_url, pool_size=1).database
        async with database.function_call(RESERVATIONS):
            await call(database)
            with pytest.raises(Overloaded):
                async with database.function_call(RESERVATIONS):
                    pass
        await database.close()

    asyncio.run(story())


def test_a_call_of_an_ending_verb_takes_the_reserve_when_all_connections_are_in_use(database_url: str) -> None:
    """With the same values and errors as any other call."""

    async def story() -> None:
        database = make_context(database_url, pool_size=1).database
        ending = database.for_request(ending_verb="confirm")
        statement = "select jsonb_build_object('one', %(one)s::integer, 'id', %(id)s::uuid)"
        values = {"one": 1, "id": uuid.UUID(int=7)}
        async with ending.function_call(RESERVATIONS) as common:
            assert isinstance(common, calls.DirectCall)
            async with ending.function_call(RESERVATIONS) as reserved:
                assert isinstance(reserved, calls.ReserveCall)
                assert await reserved.value(statement, values) == await common.value(statement, values)
        async with ending.function_call(RESERVATIONS):
            with pytest.raises(OutcomeUnknown):
                await lose(database_url, ending.function_call(RESERVATIONS))
        await database.close()

    asyncio.run(story())


def test_a_principal_takes_its_share_of_the_reserve_and_leaves_the_rest(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four connections a verb has three, and a principal one of them: its second request waits, another's does not."""
    monkeypatch.setattr(reserve, "POOL_TIMEOUT_SECONDS", 0.05)

    async def story() -> None:
        database = make_context(database_url, pool_size=1, reserve_size=4).database

        def releasing(principal: int) -> Database:
            async def claimant() -> reserve.Claimant:
                return reserve.Claimant(uuid.UUID(int=principal))

            return database.for_request(ending_verb="release", claimant=claimant)

        async with database.function_call(RESERVATIONS), releasing(1).function_call(RESERVATIONS):
            with pytest.raises(Overloaded):
                async with releasing(1).function_call(RESERVATIONS):
                    pass
            async with releasing(2).function_call(RESERVATIONS), releasing(3).function_call(RESERVATIONS) as third:
                assert isinstance(third, calls.ReserveCall)
                with pytest.raises(Overloaded):
                    async with releasing(4).function_call(RESERVATIONS):
                        pass
        async with database.function_call(RESERVATIONS), releasing(1).function_call(RESERVATIONS) as again:
            assert isinstance(again, calls.ReserveCall)
        await database.close()

    asyncio.run(story())


def test_a_loss_during_a_read_did_nothing(database_url: str) -> None:
    async def story() -> None:
        database = make_context(database_url).database
        with pytest.raises(DatabaseUnavailable):
            await lose(database_url, database.read_call(RESERVATIONS))
        await database.close()

    asyncio.run(story())
