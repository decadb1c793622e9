"""A batch of queued rows whose commit's outcome is unknown is repeated, and its rows are stored exactly once.

A deferred trigger stops the transaction at its commit; a proxy loses the response, or the whole connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
import pytest

from berth.local.servers import LocalPostgres
from orchestrator.database.transactions import connect_database
from orchestrator.http.audited.recorder import BATCH_MAX, RequestRecorder
from orchestrator.problems import DatabaseUnavailable, OperationInProgress, OutcomeUnknown
from tests.allocations.driving import rows_of
from tests.databases import copied_database
from tests.proxy import Mode, Proxies, Proxy
from tests.support.paused_commits import waiting_sessions
from tests.support.waiting import async_wait_for

LOCK = 7_203_115
PAUSE = b"""
create function pause_commit() returns trigger language plpgsql
set lock_timeout = 0 set client_connection_check_interval = 0 as $$
begin
    perform pg_advisory_xact_lock_shared(7203115);
    return null;
end $$;
create constraint trigger paused after insert on audit_pending deferrable initially deferred
    for each row execute function pause_commit();
"""
SUBJECTS = "select subject from audit_pending order by id"
BACKENDS = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'recorder-test'"


@pytest.fixture
def url(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[str]:
    """A database for this test alone."""
    with copied_database(postgres_server, migrated_template) as copied:
        yield copied


@contextmanager
def _proxied(url: str) -> Iterator[tuple[RequestRecorder, Proxy]]:
    """A recorder that reaches the database through a proxy."""
    parts, proxies = urlsplit(url), Proxies()
    assert parts.port is not None
    try:
        proxy = proxies.make("database", parts.port)
        database = connect_database(
            parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{proxy.port}").geturl(),
            pool_size=1, reserve_size=1, lock_timeout_seconds=0.2, transaction_timeout_seconds=30, application="recorder-test",
        )  # fmt: skip
        yield RequestRecorder(database), proxy
    finally:
        proxies.close()


def _queue(recorder: RequestRecorder, numbers: range) -> None:
    for number in numbers:
        recorder.record(
            {
                "at": "2026-03-01T12:00:30Z", "kind": "tenant", "id": "k", "role": "viewer", "action": "thing.turn",
                "subject": f"things/{number}", "status": 404, "code": "not_found",
            }
        )  # fmt: skip


def _subjects(numbers: range) -> list[tuple[str]]:
    return [(f"things/{number}",) for number in numbers]


async def _flush_until_commit(recorder: RequestRecorder, holder: psycopg.Connection) -> asyncio.Task[None]:
    holder.execute("select pg_advisory_lock(%s)", (LOCK,))
    flushing = asyncio.create_task(recorder.flush())
    await async_wait_for(lambda: waiting_sessions(holder) == 1 or flushing.done(), "the batch to stop at its commit")
    assert not flushing.done()
    return flushing


def test_a_batch_that_was_committed_without_a_response_is_stored_once(url: str) -> None:
    async def run() -> None:
        with psycopg.connect(url, autocommit=True) as holder, _proxied(url) as (recorder, proxy):
            holder.execute(PAUSE)
            _queue(recorder, range(3))
            flushing = await _flush_until_commit(recorder, holder)
            _queue(recorder, range(3, BATCH_MAX + 5))
            proxy.set_mode(Mode.DROP_ANSWERS)
            holder.execute("select pg_advisory_unlock(%s)", (LOCK,))
            await async_wait_for(lambda: rows_of(url, SUBJECTS) == _subjects(range(3)), "the batch is committed")
            proxy.set_mode(Mode.RESET)
            with pytest.raises(OutcomeUnknown):
                await flushing
            proxy.set_mode(Mode.PASS)
            async with recorder.running():
                await recorder.flush()

    asyncio.run(run())
    assert rows_of(url, SUBJECTS) == _subjects(range(BATCH_MAX + 5))


def test_a_batch_waits_for_its_first_transaction_and_is_stored_once(url: str) -> None:
    async def run() -> None:
        with psycopg.connect(url, autocommit=True) as holder, _proxied(url) as (recorder, proxy):
            holder.execute(PAUSE)
            _queue(recorder, range(3))
            flushing = await _flush_until_commit(recorder, holder)
            proxy.set_mode(Mode.RESET)
            with pytest.raises(OutcomeUnknown):
                await flushing
            proxy.set_mode(Mode.PASS)
            with pytest.raises(OperationInProgress):
                await recorder.flush()
            holder.execute("select pg_advisory_unlock(%s)", (LOCK,))
            await async_wait_for(lambda: rows_of(url, SUBJECTS), "the first transaction is committed")
            async with recorder.running():
                await recorder.flush()

    asyncio.run(run())
    assert rows_of(url, SUBJECTS) == _subjects(range(3))


def test_a_batch_that_was_not_committed_is_stored_by_its_repetition(url: str) -> None:
    async def run() -> None:
        with psycopg.connect(url, autocommit=True) as holder, _proxied(url) as (recorder, _):
            holder.execute(PAUSE)
            _queue(recorder, range(3))
            flushing = await _flush_until_commit(recorder, holder)
            holder.execute(BACKENDS)
            with pytest.raises((OutcomeUnknown, DatabaseUnavailable)):
                await flushing
            holder.execute("select pg_advisory_unlock(%s)", (LOCK,))
            async with recorder.running():
                await recorder.flush()

    asyncio.run(run())
    assert rows_of(url, SUBJECTS) == _subjects(range(3))


def test_a_cancelled_write_is_repeated_as_the_same_batch(url: str) -> None:
    async def run() -> None:
        with psycopg.connect(url, autocommit=True) as holder, _proxied(url) as (recorder, proxy):
            holder.execute(PAUSE)
            _queue(recorder, range(3))
            flushing = await _flush_until_commit(recorder, holder)
            proxy.set_mode(Mode.DROP_ANSWERS)
            holder.execute("select pg_advisory_unlock(%s)", (LOCK,))
            await async_wait_for(lambda: rows_of(url, SUBJECTS), "the batch is committed")
            flushing.cancel()
            await asyncio.wait([flushing], timeout=1)
            proxy.set_mode(Mode.RESET)
            await asyncio.wait([flushing])
            proxy.set_mode(Mode.PASS)
            async with recorder.running():
                await recorder.flush()

    asyncio.run(run())
    assert rows_of(url, SUBJECTS) == _subjects(range(3))


def test_a_write_that_is_cancelled_before_its_commit_is_repeated(url: str) -> None:
    async def run() -> None:
        with psycopg.connect(url, autocommit=True) as holder, _proxied(url) as (recorder, _):
            holder.execute(PAUSE)
            _queue(recorder, range(3))
            flushing = await _flush_until_commit(recorder, holder)
            flushing.cancel()
            await asyncio.wait([flushing])
            assert flushing.cancelled()
            holder.execute("select pg_advisory_unlock(%s)", (LOCK,))
            async with recorder.running():
                await recorder.flush()

    asyncio.run(run())
    assert rows_of(url, SUBJECTS) == _subjects(range(3))


def test_the_table_of_batches_has_one_row_for_each_process_of_seven_days(url: str) -> None:
    async def write(number: int) -> None:
        with _proxied(url) as (recorder, _):
            async with recorder.running():
                for turn in range(3):
                    _queue(recorder, range(number + turn, number + turn + 1))
                    await recorder.flush()

    for number in (0, 3):
        asyncio.run(write(number))
    assert rows_of(url, "select batch from audit_batches") == [(3,), (3,)]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("update audit_batches set written_at = clock_timestamp() - interval '8 days'")
    asyncio.run(write(6))
    assert rows_of(url, "select batch from audit_batches") == [(3,)]
    assert rows_of(url, SUBJECTS) == _subjects(range(9))
