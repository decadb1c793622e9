"""Refusals and privileged reads wait in a bounded queue, and are written in batches outside the requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

from berth.local.servers import LocalPostgres
from orchestrator.app import build_services, public_listener
from orchestrator.audit.store import record
from orchestrator.database.transactions import connect_database
from orchestrator.http.audited.recorder import BATCH_MAX, QUEUE_MAX, RequestRecorder
from orchestrator.http.audited.strangers import ROWS_MAX, SOURCES_MAX, StrangerCounts
from orchestrator.http.metrics import AUDIT_LOST
from orchestrator.problems import OperationInProgress
from orchestrator.tenants.principals import Actor, ActorKind
from tests.allocations.driving import rows_of
from tests.allocations.seeding import make_context
from tests.databases import copied_database
from tests.support.public_api import settings_over
from tests.support.waiting import async_wait_for

SUBJECTS = "select subject from audit_pending order by id"
NOW = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)


@pytest.fixture
def url(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[str]:
    """A database for this test alone."""
    with copied_database(postgres_server, migrated_template) as copied:
        yield copied


def _row(number: int, **members: Any) -> dict[str, Any]:
    at = {"at": NOW.isoformat(), "status": 404, "code": "not_found"}
    return (
        {"kind": "tenant", "id": "k", "role": "viewer", "action": "thing.turn", "subject": f"things/{number}"}
        | at
        | members
    )


def _lost() -> float:
    (metric,) = AUDIT_LOST.collect()
    return next(sample.value for sample in metric.samples if sample.name.endswith("_total"))


def _recorder(url: str) -> RequestRecorder:
    return RequestRecorder(
        connect_database(
            url,
            pool_size=1,
            reserve_size=1,
            lock_timeout_seconds=0.2,
            transaction_timeout_seconds=5,
            application="test",
        )
    )


@asynccontextmanager
async def _stopped_after(recorder: RequestRecorder) -> AsyncIterator[None]:
    """Stop the recorder at the end, which closes its connections."""
    try:
        yield
    finally:
        async with recorder.running():
            pass


def test_queued_rows_are_written_in_their_order_and_what_is_beyond_the_bound_is_counted(url: str) -> None:
    async def run() -> None:
        recorder, before = _recorder(url), _lost()
        async with _stopped_after(recorder):
            for number in range(QUEUE_MAX + 3):
                recorder.record(_row(number))
            assert _lost() == before + 3
            await recorder.flush()

    asyncio.run(run())
    assert rows_of(url, SUBJECTS) == [(f"things/{number}",) for number in range(QUEUE_MAX)]


def test_rows_wait_while_the_database_refuses_them_and_are_written_once(url: str) -> None:
    async def run() -> None:
        recorder = _recorder(url)
        async with _stopped_after(recorder):
            with psycopg.connect(url) as locking:
                locking.execute("lock table audit_pending")
                for number in range(BATCH_MAX + 1):
                    recorder.record(_row(number))
                with pytest.raises(OperationInProgress):
                    await recorder.flush()
            await recorder.flush()

    asyncio.run(run())
    assert rows_of(url, SUBJECTS) == [(f"things/{number}",) for number in range(BATCH_MAX + 1)]


def test_a_row_that_cannot_be_stored_does_not_hold_up_the_rows_behind_it(url: str) -> None:
    async def run() -> None:
        recorder, before = _recorder(url), _lost()
        async with _stopped_after(recorder):
            recorder.record(_row(1, tenant="no uuid"))
            for number in range(BATCH_MAX):
                recorder.record(_row(number))
            await recorder.flush()
            assert _lost() == before + BATCH_MAX

    asyncio.run(run())
    assert rows_of(url, SUBJECTS) == [(f"things/{BATCH_MAX - 1}",)]


def test_rows_are_written_without_a_request_and_at_the_end(url: str) -> None:
    async def run() -> None:
        recorder = _recorder(url)
        async with recorder.running():
            recorder.record(_row(1))
            await async_wait_for(lambda: rows_of(url, SUBJECTS), "the row is written")
            recorder.record(_row(2))
            recorder.count_stranger("203.0.113.9")

    asyncio.run(run())
    assert rows_of(url, SUBJECTS) == [("things/1",), ("things/2",), ("sources/203.0.113.9",)]


def test_a_row_outside_of_operations_has_its_request(url: str) -> None:
    async def run() -> None:
        context = make_context(url, pool_size=1)
        async with context.database.transaction() as tx:
            await record(tx, Actor(ActorKind.NODE, "n"), "thing.turn", "things/1", {"why": "because"}, "request-1")
        await context.database.close()

    asyncio.run(run())
    columns = "principal_kind, principal_id, action, subject, detail, request_id"
    assert rows_of(url, f"select {columns} from audit_pending") == [
        ("node", "n", "thing.turn", "things/1", {"why": "because"}, "request-1")
    ]


def test_a_minute_of_strangers_is_a_bounded_number_of_rows_with_the_whole_count() -> None:
    counts = StrangerCounts()
    for number in range(SOURCES_MAX + 50):
        counts.note(f"10.0.{number // 256}.{number % 256}", NOW)
    counts.note("10.0.0.7", NOW)
    counts.note(None, NOW)
    assert counts.take(NOW) == [], "the minute is not over"
    rows = counts.take(NOW + timedelta(minutes=1))
    assert len(rows) == ROWS_MAX + 1
    assert (rows[0]["subject"], rows[0]["detail"]) == ("sources/10.0.0.7", {"refusals": 2})
    assert rows[-1]["subject"] == "sources/others"
    assert sum(row["detail"]["refusals"] for row in rows) == SOURCES_MAX + 52
    assert {row["at"] for row in rows} == {"2026-03-01T12:00:00+00:00"}
    assert counts.take(NOW + timedelta(minutes=2)) == []


def test_refusals_of_strangers_are_one_row_without_their_secrets(url: str, tmp_path: Path) -> None:
    services = build_services(settings_over(url, tmp_path))
    with TestClient(public_listener(services), client=("203.0.113.9", 50_000)) as http:
        for number in range(5):
            sent = {"authorization": f"Bearer berth_secret{number}"}
            assert http.post("/api/v1/allocations", json={}, headers=sent).status_code == 401
            assert http.get("/api/v1/allocations", headers=sent).status_code == 401
        assert http.portal is not None
        http.portal.call(services.context.database.close)
    counted = rows_of(url, "select subject, source, code, (detail ->> 'refusals')::integer from audit_pending")
    # A minute may end between two of the requests.
    assert {row[:3] for row in counted} == {("sources/203.0.113.9", "203.0.113.9", "unauthenticated")}
    assert (sum(row[3] for row in counted), len(counted) <= 2) == (10, True)
    assert "berth_secret" not in str(rows_of(url, "select a::text from audit a"))
