"""Placing transactions: a batch in one call, then one by one what the batch could not place.

Every function returns one outcome per request, in input order. A refused item leaves nothing behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import structlog
from sqlalchemy.exc import DBAPIError

from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database import outcomes as database
from orchestrator.database.calls import CallGroup
from orchestrator.database.sqlstates import decode
from orchestrator.database.transactions import TransactionConflict
from orchestrator.operations.execution import TRIES_MAX, Context
from orchestrator.operations.outcomes import TryAgain
from orchestrator.operations.refusals import OperationQuotaExceeded, OperationUnstorable
from orchestrator.placement.outcomes import Failed, LostRace, PlacementOutcome
from orchestrator.placement.store.placing import PlacementRequest, QuotaMoved, place_all
from orchestrator.problems import OperationInProgress, Overloaded, Problem, Unforeseen
from orchestrator.tenants.store.tenants import find_locked_quotas

log = structlog.get_logger("orchestrator.api")


async def place(context: Context, requests: Sequence[PlacementRequest]) -> list[PlacementOutcome]:
    """Place a batch in one transaction. If one item makes it fail, each is placed alone, so that only that item fails.

    `TryAgain`: another transaction holds the item's key or quota; the batch does not wait for it.
    """
    if not requests:
        return []
    try:
        return await _place_batch(context, requests)
    except OperationQuotaExceeded as full:
        return [full] if len(requests) == 1 else await _place_without(context, requests, full.tenant_id)
    except (OperationInProgress, OperationUnstorable, DBAPIError) as error:
        if len(requests) > 1 and isinstance(error, OperationInProgress):
            return await _skip_locked_quotas(context, requests)
        if len(requests) > 1:
            return list(await asyncio.gather(*(_place_alone(context, request) for request in requests)))
        if isinstance(error, OperationInProgress):
            return [LostRace() if requests[0].wait else error]
        if isinstance(error, OperationUnstorable):
            return [error]
        raise


async def _place_batch(context: Context, requests: Sequence[PlacementRequest]) -> list[PlacementOutcome]:
    quota_first = False
    for _ in range(TRIES_MAX):
        try:
            async with context.database.function_call(CallGroup.CREATES) as call:
                reach(CrashPoint.CREATE_ALLOCATIONS_BEFORE_COMMIT)
                outcomes = await place_all(call, requests, quota_first=quota_first)
            reach(CrashPoint.CREATE_ALLOCATIONS_AFTER_COMMIT)
            return outcomes
        except QuotaMoved:
            quota_first = True
        except TransactionConflict:
            continue
    raise Overloaded(f"concurrent requests for the same nodes rolled this one back {TRIES_MAX} times; retry")


async def _skip_locked_quotas(context: Context, requests: Sequence[PlacementRequest]) -> list[PlacementOutcome]:
    """Place the requests whose quota no other transaction holds; the rest, or all if a key was held, are to try alone."""
    async with context.database.autocommit() as tx:
        locked = await find_locked_quotas(tx, {request.create.tenant_id for request in requests})
    outcomes: list[PlacementOutcome] = [TryAgain()] * len(requests)
    rest = [n for n, request in enumerate(requests) if request.create.tenant_id not in locked]
    if locked and len(rest) > 1:
        for n, outcome in zip(rest, await place(context, [requests[n] for n in rest]), strict=True):
            outcomes[n] = outcome
    return outcomes


async def _place_without(
    context: Context, requests: Sequence[PlacementRequest], tenant_id: UUID | None
) -> list[PlacementOutcome]:
    """Place the requests of the other tenants; those of this one are to try alone, until one finds its quota reached."""
    outcomes: list[PlacementOutcome] = [TryAgain()] * len(requests)
    rest = [n for n, request in enumerate(requests) if request.create.tenant_id != tenant_id]
    for n, outcome in zip(rest, await place(context, [requests[n] for n in rest]), strict=True):
        outcomes[n] = outcome
    return outcomes


async def _place_alone(context: Context, request: PlacementRequest) -> PlacementOutcome:
    """Place one item of a failed batch. Its error is its own: other items may have been placed since."""
    try:
        (outcome,) = await place(context, [request])
        return outcome
    except Problem as problem:
        return Failed(problem)
    except DBAPIError as error:
        log.error("create_failed", operation_key=request.create.operation.key, exc_info=error)
        # With an SQLSTATE, PostgreSQL refused the whole transaction: it certainly did not commit.
        return Failed(Unforeseen() if decode(error) == database.Unforeseen(None) else Problem(Unforeseen().detail))
