"""Allocations past their deadline, because a workflow could not start or was lost: somebody goes on with them (P9)."""

from __future__ import annotations

import structlog

from orchestrator.allocations.commands.waits import fail_unstarted
from orchestrator.allocations.failures import Code
from orchestrator.allocations.queries import find_overdue_allocations
from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store.due import Overdue
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.operations.execution import Context
from orchestrator.problems import Problem
from worker.metrics import FAILURES, RESCUED, SWEEP_FAILURES
from worker.workflows.starting import WorkflowStarter

log = structlog.get_logger()


async def sweep_overdue(context: Context, starter: WorkflowStarter, grace_seconds: float, limit: int) -> None:
    """Fail what was never started, or never got its units; start a workflow for whatever else waits longer than its deadline
    and the grace.

    The earliest deadline first; one that cannot be helped now hides none of the others. Raises `RPCError` if Temporal
    cannot be asked at all.
    """
    for overdue in await find_overdue_allocations(context, grace_seconds, limit):
        try:
            await _go_on(context, starter, overdue)
        except Problem as problem:
            SWEEP_FAILURES.labels("overdue").inc()
            log.warning("rescue_failed", allocation_id=str(overdue.allocation_id), why=str(problem))


async def _go_on(context: Context, starter: WorkflowStarter, overdue: Overdue) -> None:
    allocation_id = overdue.allocation_id
    log.warning("allocation_overdue", allocation_id=str(allocation_id), state=overdue.state.value)
    RESCUED.labels(f"overdue_{overdue.state.value}").inc()
    reach(CrashPoint.RESCUE_BEFORE_START)
    if overdue.state is AllocationState.PROVISIONING:
        await starter.start_rescue("provisioning", f"provisioning-overdue-{allocation_id}", allocation_id)
        reach(CrashPoint.RESCUE_AFTER_START)
        return
    if overdue.state is AllocationState.REQUESTED:
        code = await fail_unstarted(context, allocation_id)
        if code is None:
            return
        FAILURES.labels(code).inc()
        if code is Code.UNITS_NOT_FREE:
            return
    await starter.start_rescue("release", f"releasing-overdue-{allocation_id}", allocation_id)
    reach(CrashPoint.RESCUE_AFTER_START)
