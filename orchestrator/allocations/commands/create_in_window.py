"""Places a create where only its window is free, when what is free for ever did not suffice (DESIGN §5).

The look is without locks; the call that places locks the node it found, looks at its claims again, and ends holds past
their deadline that are in the way (P5: in the transaction of a rival). Bounded tries; each looks anew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.transactions import TransactionConflict
from orchestrator.operations.execution import TRIES_MAX, Context
from orchestrator.placement.store.placing import Placement, QuotaMoved, place_picked
from orchestrator.placement.store.windows import find_room
from orchestrator.problems import OperationInProgress, Problem
from orchestrator.reservations.refusals import OperationTableFull
from orchestrator.reservations.store.overdue import find_overdue_holds


async def place_in_windows(context: Context, placements: dict[int, Placement]) -> dict[int, dict[str, Any]]:
    """What became of each that a window could help, in the words of `place_allocations`, and of no other.

    `contended`: others were faster each time. `trouble`: the `Problem` that ended the search; it is told to those that were
    not tried yet as well, and to none that has its place. Without an end, only overdue holds can make room.
    """
    endless = {one.admitted.pool.pool_id for one in placements.values() if one.create.ends_at is None}
    overdue = {pool for pool in endless if await _has_overdue_holds(context, pool)}
    outcomes: dict[int, dict[str, Any]] = {}
    trouble: Problem | None = None
    for index, placement in placements.items():
        if placement.create.ends_at is None and placement.admitted.pool.pool_id not in overdue:
            continue
        if trouble is None:
            try:
                outcomes[index] = await _place(context, placement)
                continue
            except Problem as problem:
                trouble = problem
        outcomes[index] = {"outcome": "trouble", "trouble": trouble}
    return outcomes


async def _has_overdue_holds(context: Context, pool_id: int) -> bool:
    async with context.database.glance() as reading:
        return bool(await find_overdue_holds(reading, 1, pool_id=pool_id))


async def _place(context: Context, placement: Placement) -> dict[str, Any]:
    for attempt in range(TRIES_MAX):
        async with context.database.reading() as reading:
            found = await find_room(reading, placement.admitted, None, placement.create.ends_at, 1, outrun=attempt > 0)
        if not found.picks:
            return {"outcome": "no_room"}
        outcome = await _try(context, replace(placement, pick=found.picks[0], wait=attempt > 0))
        if outcome["outcome"] != "lost":
            return outcome
    return {"outcome": "contended"}


async def _try(context: Context, placement: Placement) -> dict[str, Any]:
    try:
        async with context.database.statement() as tx:
            reach(CrashPoint.CREATE_ALLOCATIONS_BEFORE_COMMIT)
            outcome = await place_picked(tx, placement, context.limits.reservation_retention_seconds)
        reach(CrashPoint.CREATE_ALLOCATIONS_AFTER_COMMIT)
        return outcome
    except (QuotaMoved, TransactionConflict):
        return {"outcome": "lost"}
    except OperationTableFull:
        return {"outcome": "operations_full"}
    except OperationInProgress:
        return {"outcome": "lost" if placement.wait else "in_progress"}
