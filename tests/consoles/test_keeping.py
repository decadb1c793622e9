"""A process confirms the sessions that it has, and no others; what it cannot confirm in time it ends."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import psycopg
import pytest
from pydantic import ValidationError

from berth.local.servers import LocalPostgres
from orchestrator.consoles.hub import (
    CONFIRM_SECONDS_MAX,
    RECONFIRM_SECONDS_MAX,
    UNCONFIRMED_SECONDS_MAX,
    ConsoleHub,
    Session,
)
from orchestrator.consoles.queries import find_unsigned
from orchestrator.consoles.rules import EndReason
from orchestrator.consoles.settings import ConsoleSettings
from orchestrator.operations.execution import Context
from orchestrator.tenants.principals import Principal
from tests.allocations.driving import run_with
from tests.consoles.stage import ConsoleStage
from tests.databases import copied_database
from tests.support.waiting import WAIT_SECONDS_MAX, async_wait_for
from worker.consoles.sweeping import sweep_consoles
from worker.settings import Settings as WorkerSettings

REFUSE_END = """
create function refuse_end() returns trigger language plpgsql as $$
begin raise exception 'no end is recorded' using errcode = '40001'; end $$;
create trigger refuse_end before update of ended_at on console_sessions for each row
when (new.ended_at is not null) execute function refuse_end()
"""
RECHECK_SECONDS = 0.05


@pytest.fixture
def rows(postgres_server: LocalPostgres, migrated_template: str, tmp_path: Path) -> Iterator[ConsoleStage]:
    """A database with a fleet; no process runs."""
    with copied_database(postgres_server, migrated_template) as url:
        yield ConsoleStage(url, tmp_path)


@asynccontextmanager
async def keeping(context: Context, unconfirmed_seconds_max: float = 60.0) -> AsyncIterator[ConsoleHub]:
    """The sessions of a process, which confirms them."""
    limits = ConsoleSettings(console_recheck_seconds=RECHECK_SECONDS).console_limits()
    hub = ConsoleHub(context, limits, "127.0.0.1:1", unconfirmed_seconds_max)
    async with hub.running():
        yield hub


@asynccontextmanager
async def opened(
    hub: ConsoleHub, context: Context, stage: ConsoleStage, allocation: uuid.UUID
) -> AsyncIterator[Session]:
    """A session of the stage's tenant."""
    principal = Principal("member", uuid.uuid4(), stage.seeded.tenant_id)
    async with hub.session(context, principal, allocation, "attach", None) as session:
        yield session


def seen(stage: ConsoleStage, session_id: uuid.UUID) -> datetime:
    (row,) = stage.rows("select seen_at from console_sessions where id = %s", session_id)
    found: datetime = row["seen_at"]
    return found


async def confirmed_anew(stage: ConsoleStage, session_id: uuid.UUID) -> None:
    """Return when the session was confirmed twice, so once by a query that began after this call."""
    for _ in range(2):
        before = seen(stage, session_id)
        await async_wait_for(lambda before=before: seen(stage, session_id) > before, "the session to be confirmed")  # type: ignore[misc]


def test_a_session_whose_end_is_not_recorded_is_not_confirmed(rows: ConsoleStage) -> None:
    first, second = rows.active(), rows.active()

    async def work(context: Context) -> None:
        async with keeping(context) as hub, opened(hub, context, rows, first) as kept:
            rows.execute(REFUSE_END)
            async with opened(hub, context, rows, second) as lost:
                lost.finish(EndReason.TENANT_ENDED)
            rows.execute("drop trigger refuse_end on console_sessions")
            await confirmed_anew(rows, kept.id)  # a round that began before the end is over
            rows.execute("update console_sessions set seen_at = seen_at - interval '1 hour' where id = %s", lost.id)
            await confirmed_anew(rows, kept.id)
            await sweep_consoles(context, 60.0, 3_600.0, 10)
            assert rows.ended(lost.id)["reason"] == "process_lost"
            assert not kept.ended.done()
            assert rows.sessions(first)[0]["ended_at"] is None

    run_with(rows.url, work)


def test_a_process_that_loses_the_database_ends_its_sessions(rows: ConsoleStage) -> None:
    """Before the worker does, which then lets another session be opened."""
    allocation = rows.active()

    async def work(context: Context) -> None:
        async with keeping(context, 0.5) as hub, opened(hub, context, rows, allocation) as session:
            await confirmed_anew(rows, session.id)
            assert not session.ended.done()
            with psycopg.connect(rows.url) as locking:
                locking.execute("lock table console_sessions in access exclusive mode")
                async with asyncio.timeout(WAIT_SECONDS_MAX):
                    assert await asyncio.shield(session.ended) is EndReason.PROCESS_LOST
        assert rows.ended(session.id)["reason"] == "process_lost"

    run_with(rows.url, work)


def test_the_process_gives_up_before_the_worker_does() -> None:
    assert least_silent_seconds() > UNCONFIRMED_SECONDS_MAX + CONFIRM_SECONDS_MAX + RECONFIRM_SECONDS_MAX
    with pytest.raises(ValidationError):
        ConsoleSettings(console_recheck_seconds=10.5)


def least_silent_seconds() -> float:
    """The least time without confirmation after which a worker may be set to end a session."""
    (bound,) = (one.ge for one in WorkerSettings.model_fields["console_silent_seconds"].metadata)
    return float(bound)


def test_sessions_that_are_too_late_take_no_turn_of_the_worker(rows: ConsoleStage) -> None:
    """Else as many of them as a turn takes would keep every other session from its task."""
    first, second = rows.active(), rows.active()

    async def work(context: Context) -> None:
        async with (
            keeping(context) as hub,
            opened(hub, context, rows, first) as late,
            opened(hub, context, rows, second) as due,
        ):
            rows.execute("update console_sessions set waits_until = clock_timestamp() where id = %s", late.id)
            assert await find_unsigned(context, 1) == [due.id]

    run_with(rows.url, work)


@pytest.mark.parametrize("address", ["api.example.org:0", "api.example.org:65536", "[::1]:99999"])
def test_an_address_without_a_possible_port_is_refused_at_the_start(address: str) -> None:
    with pytest.raises(ValidationError, match="the port is from 1 to 65535"):
        ConsoleSettings(console_address=address)
    assert ConsoleSettings(console_address="[::1]:65535").console_address == "[::1]:65535"
