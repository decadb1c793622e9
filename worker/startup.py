"""Waits at start until a server is available, for a bounded time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from berth.process.poolers import pooler_behind
from berth.process.restore_gate import restore_behind
from orchestrator.database.schema_revision import require_schema
from orchestrator.database.transactions import Database
from orchestrator.problems import Problem
from worker.health import Health
from worker.problems import CannotRun

log = structlog.get_logger()

PAUSE_SECONDS = 0.3

T = TypeVar("T")


async def retry(
    what: str,
    seconds_max: float,
    connect: Callable[[], Awaitable[T]],
    temporary: tuple[type[Exception], ...],
    note: Callable[[str], None] = lambda _: None,
) -> T:
    """Retry on `temporary` errors. Raises `CannotRun` with the last error after `seconds_max`, in which no restore was open.

    `note` gets each reason for which it waits.
    """
    deadline = time.monotonic() + seconds_max
    logged = ""
    while True:
        try:
            return await connect()
        except temporary as error:
            pooler = pooler_behind(error)
            if pooler is not None:
                raise CannotRun(str(pooler)) from error
            why = str(error) or type(error).__name__
            if restore_behind(error) is not None:
                # Only an operator ends it, and it may take long.
                deadline = time.monotonic() + seconds_max
            elif time.monotonic() > deadline:
                raise CannotRun(f"waited {seconds_max:.0f} s for {what}: {why}") from error
            if why != logged:
                log.info("waiting", for_what=what, why=why)
                note(why)
                logged = why
        await asyncio.sleep(PAUSE_SECONDS)


async def await_database(database: Database, seconds_max: float, health: Health) -> None:
    """Return when the database answers, has the schema, and no restore is open. Raises `CannotRun` after `seconds_max`.

    An open restore is waited for without a limit.
    """

    def note(why: str) -> None:
        health.waiting_for = why

    await retry("the database", seconds_max, lambda: require_schema(database), (Problem, OSError), note)
