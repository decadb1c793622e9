"""A consumer goes on after conditions that pass: its server ends the session in a transaction, or is a standby."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from berth.client import Event
from berth.client.consumer import Consumer
from berth.client.consumer_positions import Connection
from berth.local.servers import LocalPostgres, new_password
from tests.consumers.effects import Scripted, consumer_of, effects, event, position, prepare, run_until, writing
from tests.databases import copied_database
from tests.support.failover.cluster import Member
from tests.support.waiting import async_wait_for


@contextmanager
def own_database(server: LocalPostgres) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """A database that is the consumer's alone."""
    with copied_database(server, "template1") as url, psycopg.connect(url, autocommit=True) as database:
        prepare(url)
        yield url, database


@pytest.mark.parametrize(
    "setting", ["idle_in_transaction_session_timeout", "transaction_timeout"], ids=["idle", "too long"]
)
def test_a_session_that_the_server_ends_in_a_transaction_is_followed_by_another(
    postgres_server: LocalPostgres, setting: str
) -> None:
    ended: list[int] = []
    with own_database(postgres_server) as (url, database):

        async def handle(transaction: Connection, events: Sequence[Event]) -> None:
            await writing("late")(transaction, events)
            if events[-1].version == 3 and not ended:
                pid = transaction.info.backend_pid
                await transaction.execute(f"set local {setting} = '20ms'".encode())

                def has_ended() -> bool:
                    return database.execute("select from pg_stat_activity where pid = %s", (pid,)).fetchone() is None

                await async_wait_for(has_ended, "the server to end the session")
                ended.append(pid)
                await transaction.execute("select 1")

        source = Scripted(lambda after: [[event(v)] for v in range(after + 1, 6)])
        consumer = consumer_of(url, "late", source, handle=handle)
        asyncio.run(run_until(consumer, lambda: position(database, "late") == 5))
        assert effects(database, "late") == [1, 2, 3, 4, 5]
        assert len(ended) == 1


def test_a_standby_that_refuses_a_write_is_followed_by_the_primary(tmp_path: Path) -> None:
    """As when an address leads to a server that was demoted, until the next connection."""
    primary = Member(tmp_path, "primary", new_password())
    standby = Member(tmp_path, "standby", primary.password, primary)
    try:
        primary.start()
        prepare(primary.url())
        standby.start()
        wrong = [standby.url()]

        async def connect() -> Connection:
            return await psycopg.AsyncConnection.connect(wrong.pop() if wrong else primary.url())

        source = Scripted(lambda after: [[event(v)] for v in range(after + 1, 4)])
        consumer = Consumer("moved", source, connect, writing("moved"))
        with psycopg.connect(primary.url(), autocommit=True) as database:
            asyncio.run(run_until(consumer, lambda: position(database, "moved") == 3))
            assert effects(database, "moved") == [1, 2, 3]
        assert not wrong
    finally:
        standby.kill()
        primary.kill()
