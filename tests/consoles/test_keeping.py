"""A process confirms the sessions that it has, and no others; what it cannot confirm in time it ends."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import pytest

from berth.local.servers import LocalPostgres
from orchestrator.consoles.hub import ConsoleHub, Session
from orchestrator.consoles.rules import EndReason
from orchestrator.consoles.settings import ConsoleSettings
from orchestrator.operations.execution import Context
from orchestrator.tenants.principals import Principal
from tests.allocations.driving import run_with
from tests.consoles.stage import ConsoleStage
from tests.databases import copied_database
from tests.support.waiting import async_wait_for
from worker.consoles.sweeping import sweep_consoles

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
async def keeping(context: Context) -> AsyncIterator[ConsoleHub]:
    """The sessions of a process, which confirms them."""
    limits = ConsoleSettings(console_recheck_seconds=RECHECK_SECONDS).console_limits()
    hub = ConsoleHub(context, limits, "127.0.0.1:1")
    async with hub.running():
        yield hub


@asynccontextmanager
async def opened(hub: ConsoleHub, context: Context, stage: ConsoleStage, allocation: uuid.UUID) -> AsyncIterator[Session]:
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
            rows.execute("update console_sessions set seen_at = seen_at - interval '1 hour' where id = %s", lost.id)
            await confirmed_anew(rows, kept.id)
            await sweep_consoles(context, 60.0, 3_600.0, 10)
            assert rows.ended(lost.id)["reason"] == "process_lost"
            assert not kept.ended.done()
            assert rows.sessions(first)[0]["ended_at"] is None

    run_with(rows.url, work)
