"""Allocations with an `ends_at`: announces the end `ending_notice_seconds` before, and releases at the end."""

from __future__ import annotations

import structlog

from orchestrator.allocations.commands.notify_expiry import notify_expiry
from orchestrator.allocations.commands.release import release_at_end
from orchestrator.allocations.queries import find_ended, find_ending
from orchestrator.operations.execution import Context
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_failure

log = structlog.get_logger()


async def release_ended(context: Context, limit: int) -> None:
    """Release at most `limit` allocations past their `ends_at`, the earliest first."""
    for allocation_id in await find_ended(context, limit):
        with isolate_failure("ended_allocations", allocation_id=str(allocation_id)):
            if await release_at_end(context, allocation_id):
                SWEPT.labels("allocation_ended").inc()
                log.info("allocation_ended", allocation_id=str(allocation_id))


async def announce_ends(context: Context, limit: int) -> None:
    """Write `reservation.ending` for at most `limit` allocations, the earliest end first; once per allocation."""
    for allocation_id in await find_ending(context, limit):
        with isolate_failure("ending_notices", allocation_id=str(allocation_id)):
            if await notify_expiry(context, allocation_id):
                SWEPT.labels("ending_notified").inc()
                log.info("ending_notified", allocation_id=str(allocation_id))
