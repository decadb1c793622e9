"""Processes that write to a cluster one row after the other, in each way that a process of ours writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import psycopg

from orchestrator.database.calls import CallGroup
from orchestrator.database.transactions import Database, connect_database
from tests.support.failover.cluster import Cluster, Member

ANSWER_SECONDS = 2.0
"""What these tests give a server to answer, so that they need not wait for what production gives."""
_INSERT = "insert into written (writer, number) values (:writer, :number)"
_CALL = "with w as (insert into written values (%(writer)s, %(number)s) returning 1) select count(*) from w"
TABLE = "create table written (writer text, number integer, primary key (writer, number))"
"""The rows."""


@asynccontextmanager
async def connected(
    cluster: Cluster, url: str = "", answer_seconds_max: float = ANSWER_SECONDS
) -> AsyncIterator[Database]:
    """The pools of a process on this cluster, or at this address."""
    database = connect_database(
        url or cluster.url, pool_size=4, reserve_size=2, lock_timeout_seconds=2, transaction_timeout_seconds=20,
        application="test", answer_seconds_max=answer_seconds_max,
    )  # fmt: skip
    database = database.for_platform()
    try:
        yield database
    finally:
        await database.close()


async def write_in_transaction(database: Database, writer: str, number: int) -> None:
    """One row, with BEGIN and COMMIT."""
    async with database.transaction() as tx:
        await tx.execute(_INSERT, {"writer": writer, "number": number})


async def write_at_once(database: Database, writer: str, number: int) -> None:
    """One row, as a statement that is its own transaction."""
    async with database.autocommit() as tx:
        await tx.execute(_INSERT, {"writer": writer, "number": number})


async def write_by_call(database: Database, writer: str, number: int) -> None:
    """One row, over the connections of calls."""
    async with database.function_call(CallGroup.CREATES) as call:
        await call.value(_CALL, {"writer": writer, "number": number})


Write = Callable[[Database, str, int], Awaitable[None]]
WRITES: dict[str, Write] = {"transaction": write_in_transaction, "autocommit": write_at_once, "call": write_by_call}


def rows_of(member: Member) -> set[tuple[str, int]]:
    """What this server has."""
    with psycopg.connect(member.url(), autocommit=True) as connection:
        return set(connection.execute("select writer, number from written").fetchall())
