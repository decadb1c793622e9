"""Holds past their deadline, windows that are over, and reservations whose record was kept long enough."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import structlog

from orchestrator.operations.execution import Context
from orchestrator.problems import Problem
from orchestrator.reservations.commands.expire import end_window, expire_reservation, retire_reservations
from orchestrator.reservations.queries import find_overdue_holds, find_windows_over
from worker.metrics import SWEEP_FAILURES, SWEPT

log = structlog.get_logger()

RETIRED_BATCHES_MAX = 10


async def sweep_overdue_holds(context: Context, limit: int) -> None:
    """Expire at most `limit` holds, the earliest deadline first, each in its own transaction."""
    found = await find_overdue_holds(context, limit)
    await _end(found, lambda one: expire_reservation(context, one), "reservation_expired")


async def sweep_windows_over(context: Context, limit: int) -> None:
    """Release at most `limit` confirmed windows that passed unused, the earliest first, each in its own transaction."""
    found = await find_windows_over(context, limit)
    await _end(found, lambda one: end_window(context, one), "reservation_released")


async def _end(found: Sequence[UUID], end: Callable[[UUID], Awaitable[bool]], kind: str) -> None:
    """One that cannot be ended now hides none of the others."""
    for reservation_id in found:
        try:
            if await end(reservation_id):
                SWEPT.labels(kind).inc()
                log.info(kind, reservation_id=str(reservation_id))
        except Problem as problem:
            SWEEP_FAILURES.labels(kind).inc()
            log.warning("sweep_of_reservation_failed", reservation_id=str(reservation_id), why=str(problem))


async def sweep_retired_reservations(context: Context, limit: int) -> None:
    """Forget what ended long ago, the earliest first, in small transactions."""
    for _ in range(RETIRED_BATCHES_MAX):
        retired = await retire_reservations(context, limit)
        SWEPT.labels("reservation_retired").inc(retired)
        if retired:
            log.info("reservations_retired", count=retired)
        if retired < limit:
            return
