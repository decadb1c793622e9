"""Transactions that name their tenants fail as others do: refused, cancelled, lost (orchestrator/database/row_security.py)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import psycopg
import pytest
import sqlalchemy.exc

from orchestrator.database.calls import CallGroup
from orchestrator.database.transactions import Database
from orchestrator.problems import DatabaseUnavailable, OutcomeUnknown
from tests.allocations.seeding import make_context

KINDS = ("call", "read_one", "reading", "autocommit", "transaction")
TENANT = UUID(int=7)


@asynccontextmanager
async def one_session(url: str) -> AsyncIterator[Database]:
    """A database with a single connection of each kind, which names a tenant."""
    database = make_context(url, pool_size=1).database.for_tenants(TENANT)
    try:
        yield database
    finally:
        await database.close()


async def first(database: Database, kind: str, statement: str) -> object:
    """The value of a statement that is the first of a transaction of this kind."""
    if kind == "call":
        async with database.function_call(CallGroup.CREATES) as call:
            return await call.value(statement, {})
    if kind in ("read_one", "reading"):
        async with database.read_one() if kind == "read_one" else database.reading() as reading:
            return (await reading.execute(statement)).scalar_one()
    async with database.autocommit() if kind == "autocommit" else database.transaction() as tx:
        return (await tx.execute(statement)).scalar_one()


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_statement_raises_its_error_and_the_session_serves_on(database_url: str, kind: str) -> None:
    async def story() -> None:
        async with one_session(database_url) as database:
            pid = await first(database, kind, "select pg_backend_pid()")
            for _ in range(7):  # the statements are prepared meanwhile
                with pytest.raises(sqlalchemy.exc.DBAPIError) as refused:
                    await first(database, kind, "select 1 / (pg_backend_pid() - pg_backend_pid())")
                assert isinstance(refused.value.orig, psycopg.errors.DivisionByZero)
                named = await first(database, kind, "select current_setting('berth.tenants')")
                assert named == f"{{{TENANT}}}"
            assert await first(database, kind, "select pg_backend_pid()") == pid

    asyncio.run(story())


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_statement_keeps_no_session(database_url: str, kind: str) -> None:
    async def story() -> None:
        async with one_session(database_url) as database:
            await first(database, kind, "select 1")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await first(database, kind, "select 1 from pg_sleep(30)")
            async with asyncio.timeout(5):
                assert await first(database, kind, "select current_setting('berth.tenants')") == f"{{{TENANT}}}"

    asyncio.run(story())


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_session_is_what_it_is_without_a_name(database_url: str, kind: str) -> None:
    async def story() -> None:
        async with one_session(database_url) as database:
            pid = await first(database, kind, "select pg_backend_pid()")
            with psycopg.connect(database_url, autocommit=True) as other:
                other.execute("select pg_terminate_backend(%s, 5000)", (pid,))
            with pytest.raises(OutcomeUnknown if kind in ("call", "autocommit") else DatabaseUnavailable):
                await first(database, kind, "select 1")
            assert await first(database, kind, "select current_setting('berth.tenants')") == f"{{{TENANT}}}"

    asyncio.run(story())
