"""Allocations past the deadline of their wait, because no workflow started or theirs was lost (P9)."""

from __future__ import annotations

import structlog

from orchestrator.allocations.commands.waits import fail_unstarted
from orchestrator.allocations.failures import Code
from orchestrator.allocations.queries import find_overdue_allocations
from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store.due import Overdue
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.operations.execution import Context
from worker.metrics import FAILURES, RESCUED
from worker.sweepers.sweeper import isolate_failure
from worker.workflows.starting import WorkflowStarter

log = structlog.get_logger()


async def rescue_overdue_allocations(
    context: Context, starter: WorkflowStarter, grace_seconds: float, limit: int
) -> None:
    """Handle at most `limit` allocations that wait longer than their deadline and the grace, the earliest first.

    One in `requested` fails; any other gets a new workflow. Raises `RPCError` if Temporal is unavailable.
    """
    for overdue in await find_overdue_allocations(context, grace_seconds, limit):
        with isolate_failure("overdue_allocations", allocation_id=str(overdue.allocation_id)):
            await _rescue(context, starter, overdue)


async def _rescue(context: Context, starter: WorkflowStarter, overdue: Overdue) -> None:
    allocation_id = overdue.allocation_id
    log.warning("allocation_overdue", allocation_id=str(allocation_id), state=overdue.state.value)
    RESCUED.labels(f"overdue_{overdue.state.value}").inc()
    reach(CrashPoint.RESCUE_BEFORE_START)
    if overdue.state is AllocationState.PROVISIONING:
        await starter.start_rescue("provisioning", allocation_id)
        reach(CrashPoint.RESCUE_AFTER_START)
        return
    if overdue.state is AllocationState.ACTIVE:
        await starter.start_rescue("verb", allocation_id)
        reach(CrashPoint.RESCUE_AFTER_START)
        return
    if overdue.state is AllocationState.REQUESTED:
        code = await fail_unstarted(context, allocation_id)
        if code is None:
            return
        FAILURES.labels(code).inc()
        if code is Code.UNITS_NOT_FREE:
            return
    await starter.start_rescue("release", allocation_id)
    reach(CrashPoint.RESCUE_AFTER_START)
