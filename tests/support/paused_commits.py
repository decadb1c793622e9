"""Transactions that stop at their commit with all their locks held, so that a test decides the order of two writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import psycopg

from tests.support.waiting import wait_for

_LOCK = 7_203_114
_INSTALL = """
create function pause_commit() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock_shared(7203114);
    return null;
end $$;
create constraint trigger paused after insert on outbox deferrable initially deferred
    for each row execute function pause_commit();
create constraint trigger paused after insert on notification_subscriptions deferrable initially deferred
    for each row execute function pause_commit();
"""
_REMOVE = "drop function pause_commit cascade"
_WAITING = """
select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
"""


@contextmanager
def pausing(database: psycopg.Connection[tuple[object, ...]]) -> Iterator[Callable[[], None]]:
    """In the block, transactions that emit an event or open a subscription stop at their commit until the result is called."""
    database.execute(_INSTALL)
    database.execute("select pg_advisory_lock(%s)", (_LOCK,))
    held = [True]

    def go_on() -> None:
        if held:
            held.clear()
            database.execute("select pg_advisory_unlock(%s)", (_LOCK,))

    try:
        yield go_on
    finally:
        go_on()
        database.execute(_REMOVE)


def waiting_sessions(database: psycopg.Connection[tuple[object, ...]]) -> int:
    """How many sessions of this database wait for a lock."""
    row = database.execute(_WAITING).fetchone()
    assert row is not None
    assert isinstance(row[0], int)
    return row[0]


def in_order(
    database: psycopg.Connection[tuple[object, ...]],
    first: Callable[[], httpx.Response],
    second: Callable[[], httpx.Response],
) -> tuple[httpx.Response, httpx.Response]:
    """The answers when `first` is about to commit, with all its locks, while `second` runs until it waits for a lock."""
    with ThreadPoolExecutor(2) as pool, pausing(database) as go_on:
        earlier = pool.submit(first)
        wait_for(lambda: waiting_sessions(database) >= 1 or earlier.done(), "the first write to stop at its commit")
        assert not earlier.done(), earlier.result().text
        later = pool.submit(second)
        wait_for(lambda: waiting_sessions(database) >= 2 or later.done(), "the second write to wait for a lock")
        assert not later.done(), later.result().text
        go_on()
        return earlier.result(), later.result()
