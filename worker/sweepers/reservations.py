"""Expires overdue holds, releases windows that passed unused, and deletes reservations past their retention."""

from __future__ import annotations

import structlog

from orchestrator.operations.execution import Context
from orchestrator.reservations.commands.expire import end_window, expire_reservation, retire_reservations
from orchestrator.reservations.queries import find_overdue_holds, find_windows_over
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_failure

log = structlog.get_logger()

RETIRED_BATCHES_MAX = 10


async def sweep_overdue_holds(context: Context, limit: int) -> None:
    """Expire at most `limit` holds, the earliest deadline first, each in its own transaction."""
    for reservation_id in await find_overdue_holds(context, limit):
        with isolate_failure("overdue_holds", reservation_id=str(reservation_id)):
            if await expire_reservation(context, reservation_id):
                SWEPT.labels("reservation_expired").inc()
                log.info("reservation_expired", reservation_id=str(reservation_id))


async def sweep_windows_over(context: Context, limit: int) -> None:
    """Release at most `limit` confirmed windows that passed unused, the earliest first, each in its own transaction."""
    for reservation_id in await find_windows_over(context, limit):
        with isolate_failure("windows_over", reservation_id=str(reservation_id)):
            if await end_window(context, reservation_id):
                SWEPT.labels("reservation_released").inc()
                log.info("reservation_released", reservation_id=str(reservation_id))


async def sweep_retired_reservations(context: Context, limit: int) -> None:
    """Delete at most ten batches of `limit` ended reservations, the earliest first, each batch in its own transaction."""
    for _ in range(RETIRED_BATCHES_MAX):
        retired = await retire_reservations(context, limit)
        SWEPT.labels("reservation_retired").inc(retired)
        if retired:
            log.info("reservations_retired", count=retired)
        if retired < limit:
            return
