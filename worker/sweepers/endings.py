"""What ends by itself: allocations are warned about before their `ends_at`, and released at it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import structlog

from orchestrator.allocations.commands.notify_expiry import notify_expiry
from orchestrator.allocations.commands.release import release_at_end
from orchestrator.allocations.queries import find_ended, find_ending
from orchestrator.operations.execution import Context
from orchestrator.problems import Problem
from worker.metrics import SWEEP_FAILURES, SWEPT

log = structlog.get_logger()


async def sweep_ended(context: Context, limit: int) -> None:
    """Release at most `limit` allocations whose time is over, the earliest first, however long ago it was."""
    await _each(await find_ended(context, limit), lambda one: release_at_end(context, one), "allocation_ended")


async def sweep_ending(context: Context, limit: int) -> None:
    """Tell of at most `limit` allocations that they are about to end, the earliest first; each is told once."""
    await _each(await find_ending(context, limit), lambda one: notify_expiry(context, one), "ending_told")


async def _each(found: Sequence[UUID], act: Callable[[UUID], Awaitable[bool]], kind: str) -> None:
    """One that cannot be ended now hides none of the others."""
    for allocation_id in found:
        try:
            if await act(allocation_id):
                SWEPT.labels(kind).inc()
                log.info(kind, allocation_id=str(allocation_id))
        except Problem as problem:
            SWEEP_FAILURES.labels(kind).inc()
            log.warning("sweep_of_allocation_failed", allocation_id=str(allocation_id), why=str(problem))
