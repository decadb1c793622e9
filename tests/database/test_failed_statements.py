"""A statement that failed, or a connection that closed at any moment, spoils no later request (P12, P13)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from psycopg._preparing import PrepareManager
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from orchestrator.database.calls import CallGroup
from orchestrator.database.transactions import Database, Reading, connect_database
from orchestrator.problems import DatabaseUnavailable, OperationInProgress
from tests.allocations.seeding import connect

COUNT = "select count(*) from allocations"


@asynccontextmanager
async def one_connection(url: str) -> AsyncIterator[Database]:
    """A database whose pools have one connection each, for acts of the platform."""
    database = connect_database(
        url, pool_size=1, reserve_size=1, lock_timeout_seconds=0.3, transaction_timeout_seconds=20, application="tests"
    )
    try:
        yield database.for_platform()
    finally:
        await database.close()


async def read_one(database: Database) -> int:
    async with database.read_one() as reading:
        return int((await reading.execute(COUNT)).scalar_one())


async def write_alone(database: Database) -> int:
    async with database.autocommit() as tx:
        return int((await tx.execute(COUNT)).scalar_one())


async def call(database: Database) -> int:
    async with database.read_call(CallGroup.RESERVATIONS) as called:
        return int(await called.value(f"{COUNT} where %(one)s = 1", {"one": 1}))


@pytest.mark.parametrize("ask", [read_one, write_alone, call])
def test_a_statement_whose_preparation_failed_can_be_used_again(database_url: str, ask: Callable[..., Any]) -> None:
    async def play() -> int:
        async with one_connection(database_url) as database:
            # The next execution prepares the statement, which needs a lock on its table.
            for _ in range(PrepareManager.prepare_threshold or 0):
                await ask(database)
            with connect(database_url) as maintenance:
                maintenance.execute("begin")
                maintenance.execute("lock table allocations in access exclusive mode")
                with pytest.raises(OperationInProgress):
                    await ask(database)
                maintenance.execute("rollback")
            return int(await ask(database))

    assert asyncio.run(play()) == 0


def test_a_failure_of_a_prepared_statement_leaves_those_of_its_connection_prepared(database_url: str) -> None:
    divide = "select 1 / %(by)s::int"

    async def divided(database: Database, by: int) -> int:
        async with database.read_call(CallGroup.RESERVATIONS) as called:
            return int(await called.value(divide, {"by": by}))

    async def play() -> list[int]:
        counts = []
        async with one_connection(database_url) as database:
            for _ in range(2 * (PrepareManager.prepare_threshold or 0)):
                await divided(database, 1)
            for by in (1, 0):
                if by == 0:
                    with pytest.raises(DBAPIError):
                        await divided(database, by)
                async with database.read_call(CallGroup.RESERVATIONS) as called:
                    counts.append(int(await called.value("select count(*) from pg_prepared_statements", {})))
        return counts

    before, after = asyncio.run(play())
    assert before > 0
    assert after == before


WAYS: dict[str, Callable[[Database], AbstractAsyncContextManager[Reading]]] = {
    "autocommit": Database.autocommit,
    "reading": Database.reading,
    "read_one": Database.read_one,
    "transaction": Database.transaction,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_connection_that_closes_when_it_is_taken_is_unavailable_once(database_url: str, way: str) -> None:
    async def play() -> int:
        async with one_connection(database_url) as database:
            await read_one(database)
            engine = database._pools._engine.sync_engine

            def close(connection: Any, record: Any, proxy: Any) -> None:
                connection.driver_connection.pgconn.finish()

            event.listen(engine, "checkout", close)
            with pytest.raises(DatabaseUnavailable):
                async with WAYS[way](database) as reading:
                    await reading.execute(COUNT)
            event.remove(engine, "checkout", close)
            return await read_one(database)

    assert asyncio.run(play()) == 0
