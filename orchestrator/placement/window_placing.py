"""Places creates whose slots are free only within their window, after no node had slots free without an end.

The search takes no locks. The call that places locks the node, reads its claims again, and expires overdue holds that
occupy the slots, in its own transaction (P5). The number of attempts is bounded; each searches anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.calls import CallGroup
from orchestrator.database.transactions import TransactionConflict
from orchestrator.operations.execution import TRIES_MAX, Context
from orchestrator.operations.refusals import OperationUnstorable
from orchestrator.placement.outcomes import Failed, LostRace, NoRoom, PlacementOutcome
from orchestrator.placement.refusals import contended
from orchestrator.placement.store.placing import PlacementRequest, QuotaMoved, place_picked
from orchestrator.placement.store.windows import find_room, has_overdue_holds
from orchestrator.problems import OperationInProgress, Problem


async def place_in_windows(context: Context, requests: Mapping[int, PlacementRequest]) -> dict[int, PlacementOutcome]:
    """Place each request that its window can help; return their outcomes, without those of the others.

    A request without an end is tried only where overdue holds can make room. The first error ends the search: that request
    and all later ones are `Failed` with it.
    """
    endless = {request.admitted.pool.pool_id for request in requests.values() if request.create.ends_at is None}
    overdue = {pool_id for pool_id in endless if await _has_overdue_holds(context, pool_id)}
    outcomes: dict[int, PlacementOutcome] = {}
    failed: Failed | None = None
    for index, request in requests.items():
        if request.create.ends_at is None and request.admitted.pool.pool_id not in overdue:
            continue
        if failed is None:
            try:
                outcomes[index] = await _place(context, request)
                continue
            except Problem as problem:
                failed = Failed(problem)
        outcomes[index] = failed
    return outcomes


async def _has_overdue_holds(context: Context, pool_id: int) -> bool:
    async with context.database.read_one() as reading:
        return await has_overdue_holds(reading, pool_id)


async def _place(context: Context, request: PlacementRequest) -> PlacementOutcome:
    for attempt in range(TRIES_MAX):
        async with context.database.reading() as reading:
            found = await find_room(reading, request.admitted, None, request.create.ends_at, 1, outrun=attempt > 0)
        if not found.picks:
            return NoRoom()
        outcome = await _try(context, replace(request, pick=found.picks[0], wait=attempt > 0))
        if not isinstance(outcome, LostRace):
            return outcome
    return contended()


async def _try(context: Context, request: PlacementRequest) -> PlacementOutcome:
    try:
        async with context.database.function_call(CallGroup.CREATES) as call:
            reach(CrashPoint.CREATE_ALLOCATIONS_BEFORE_COMMIT)
            outcome = await place_picked(call, request, context.limits.reservation_retention_seconds)
        reach(CrashPoint.CREATE_ALLOCATIONS_AFTER_COMMIT)
        # No room on the picked node: it was cordoned or went offline after the search. Other nodes may fit.
        return LostRace() if isinstance(outcome, NoRoom) else outcome
    except (QuotaMoved, TransactionConflict):
        return LostRace()
    except OperationUnstorable as full:
        return full
    except OperationInProgress as in_progress:
        return LostRace() if request.wait else in_progress
