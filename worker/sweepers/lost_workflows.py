"""Waits whose workflow is gone (Temporal was wiped, a workflow was terminated or failed) or was never told that its task
has ended (NATS is away): ended long before their deadline (P9).

Acts only on positive evidence: Temporal itself answers that no workflow which could go on is running, the event that
was to start one has been handed over, and afterwards, under the locks, nothing has changed.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Literal
from uuid import UUID

import structlog

from orchestrator.allocations.commands.waits import take_over_wait
from orchestrator.allocations.queries import find_waiters
from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store.due import Waiter
from orchestrator.allocations.waits import Wait
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.operations.execution import Context
from orchestrator.problems import Problem
from worker.consumers.events import PROVISIONING_REQUESTED
from worker.metrics import RESCUED, SWEEP_FAILURES
from worker.workflows.starting import WorkflowStanding, WorkflowStarter

log = structlog.get_logger()

PROVISIONED_YET_TO_BE = (AllocationState.REQUESTED, AllocationState.PROVISIONING)
BEGINNING = (datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))


class LostWorkflows:
    """Asks Temporal about at most `limit` waits in a round, one round in `seconds`, the earliest deadline first.

    The next round goes on where this one ended, and at the end begins again, so that those which are well hide nobody.
    """

    def __init__(
        self, context: Context, starter: WorkflowStarter, *, consumer: str, patience_seconds: float, seconds: float,
        limit: int,
    ) -> None:  # fmt: skip
        self._context = context
        self._starter = starter
        self._consumer = consumer
        self._patience_seconds = patience_seconds
        self._seconds = seconds
        self._limit = limit
        self._due = float("-inf")
        self._after = BEGINNING

    async def sweep(self) -> None:
        """One round, if it is time. Raises `RPCError` if Temporal cannot be asked; then nothing is concluded."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + self._seconds
        waiters = await find_waiters(
            self._context, consumer=self._consumer, patience_seconds=self._patience_seconds, after=self._after,
            limit=self._limit,
        )  # fmt: skip
        for waiter in waiters:
            try:
                await self._look_after(waiter)
            except Problem as problem:
                SWEEP_FAILURES.labels("lost_workflows").inc()
                log.warning("rescue_failed", allocation_id=str(waiter.allocation_id), why=str(problem))
        full = len(waiters) == self._limit
        self._after = (waiters[-1].waits_until, waiters[-1].allocation_id) if full else BEGINNING

    async def _look_after(self, waiter: Waiter) -> None:
        workflow_ids = may_go_on(waiter)
        if workflow_ids is None:
            return
        why = "workflow_lost"
        for workflow_id in workflow_ids:
            standing = await self._starter.standing(workflow_id)
            if standing is WorkflowStanding.RUNS:
                await self._wake(waiter, workflow_id)
                return
            if standing is WorkflowStanding.CLOSED:
                why = "workflow_closed"
        rescue_id = rescue_of(waiter)
        if not await take_over_wait(self._context, waiter, rescue_id):
            return
        log.warning(
            "allocation_rescued", allocation_id=str(waiter.allocation_id), state=waiter.state.value, why=why,
            instead_of=workflow_ids, workflow_id=rescue_id,
        )  # fmt: skip
        RESCUED.labels(why).inc()
        reach(CrashPoint.RESCUE_BEFORE_START)
        await self._starter.start_rescue(workflow_of(waiter), rescue_id, waiter.allocation_id)
        reach(CrashPoint.RESCUE_AFTER_START)

    async def _wake(self, waiter: Waiter, workflow_id: str) -> None:
        """Tell a workflow what its task's event should have told it; a hint, which does no harm when it comes twice."""
        if not waiter.task_ended or waiter.task_id is None or waiter.waits_for is not Wait.NODE:
            return
        if await self._starter.wake(workflow_id, waiter.task_id):
            log.warning("workflow_woken", allocation_id=str(waiter.allocation_id), workflow_id=workflow_id)
            RESCUED.labels("end_not_told").inc()


def workflow_of(waiter: Waiter) -> Literal["provisioning", "release"]:
    """Which story goes on."""
    return "provisioning" if waiter.state in PROVISIONED_YET_TO_BE else "release"


def rescue_of(waiter: Waiter) -> str:
    """The id of the workflow that goes on in the place of a lost one."""
    return f"{'provisioning' if waiter.state in PROVISIONED_YET_TO_BE else 'releasing'}-overdue-{waiter.allocation_id}"


def may_go_on(waiter: Waiter) -> list[str] | None:
    """Every workflow that may be the one which goes on; None if one may yet be started by an event. Pure.

    Who issued the newest task goes on with it. Before there is a task it is the workflow of the event with the claim's
    newest fence, and that event counts only once the consumer has handed it over.
    """
    issuer = [] if waiter.notify is None else [waiter.notify]
    if waiter.waits_for in (Wait.NODE, Wait.RETRY):
        return issuer
    starts = []
    if waiter.event_id is not None:
        if waiter.event_version is None or waiter.position < waiter.event_version:
            return None
        kind = "provisioning" if waiter.event_type == PROVISIONING_REQUESTED else "releasing"
        starts = [f"{kind}-{waiter.event_id}"]
    elif waiter.waits_for is Wait.WORKER:
        return None
    return [*starts, *issuer, rescue_of(waiter)]
