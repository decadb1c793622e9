"""Rescues allocations that wait for a workflow which Temporal no longer runs, or which missed its task's signal (P9).

Causes: Temporal lost its data, a workflow was terminated or failed, or NATS is unavailable. A wait is taken over only on
positive evidence: Temporal answers that no workflow able to continue runs, the event that starts one was delivered, and
the row is unchanged under its lock.

A Temporal with an empty store is noticed by the id of its namespace, which is made once and stored with the workflows. Then
every wait is checked at once, whatever its age.
"""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import structlog

from orchestrator.allocations.commands.waits import take_over_wait
from orchestrator.allocations.queries import find_waiters
from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store.due import Waiter
from orchestrator.allocations.waits import Wait
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.operations.execution import Context
from worker.consumers.dispatching import WORKFLOWS
from worker.metrics import RESCUED, STORES_REPLACED
from worker.sweepers.sweeper import isolate_failure
from worker.workflows.starting import (
    WorkflowName,
    WorkflowStarter,
    WorkflowStatus,
    event_workflow_id,
    rescue_workflow_id,
)

log = structlog.get_logger()

BEFORE_PROVISIONED = (AllocationState.REQUESTED, AllocationState.PROVISIONING)
Position = tuple[datetime, UUID]
"""A deadline and an allocation: waits are checked in this order."""
FIRST_POSITION: Position = (datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))


class WorkflowRescuer:
    """Checks waits with Temporal, at most `limit` a run, the earliest deadline first.

    `run` checks those older than `patience_seconds`; the next run continues after the last wait of this one, and starts
    again at the end. `check_store` checks all of them, once for each store that Temporal is found with.
    """

    def __init__(
        self, context: Context, starter: WorkflowStarter, *, consumer: str, patience_seconds: float, limit: int
    ) -> None:
        self._context = context
        self._starter = starter
        self._consumer = consumer
        self._patience_seconds = patience_seconds
        self._limit = limit
        self._after = FIRST_POSITION
        self._store: str | None = None
        self._after_in_store: Position | None = None

    async def run(self) -> None:
        """Check the next waits. Raises `RPCError` if Temporal is unavailable: that is no evidence of a lost workflow."""
        following = await self._check_page(self._patience_seconds, self._after)
        self._after = following or FIRST_POSITION

    async def check_store(self) -> bool:
        """Begin with all waits if Temporal has another store than before; check the next of them. True if some are left.

        A process that starts has seen no store, so it checks all waits. Raises `RPCError` if Temporal is unavailable.
        """
        store = await self._starter.store_id()
        if store != self._store:
            if self._store is not None:
                log.warning("temporal_store_replaced", before=self._store, now=store)
                STORES_REPLACED.inc()
            self._store = store
            self._after_in_store = FIRST_POSITION
        if self._after_in_store is not None:
            self._after_in_store = await self._check_page(0.0, self._after_in_store)
        return self._after_in_store is not None

    async def _check_page(self, patience_seconds: float, after: Position) -> Position | None:
        """Check a page of waits; the place of its last if there may be more."""
        waiters = await find_waiters(
            self._context, consumer=self._consumer, patience_seconds=patience_seconds, after=after, limit=self._limit
        )
        for waiter in waiters:
            with isolate_failure("lost_workflows", allocation_id=str(waiter.allocation_id)):
                await self._check(waiter)
        return (waiters[-1].waits_until, waiters[-1].allocation_id) if len(waiters) == self._limit else None

    async def _check(self, waiter: Waiter) -> None:
        workflow_ids = responsible_workflow_ids(waiter)
        if workflow_ids is None:
            return
        why = "workflow_lost"
        for workflow_id in workflow_ids:
            status = await self._starter.status(workflow_id)
            if status is WorkflowStatus.RUNNING:
                await self._repeat_signal(waiter, workflow_id)
                return
            if status is WorkflowStatus.CLOSED:
                why = "workflow_closed"
        await self._replace(waiter, workflow_ids, why)

    async def _replace(self, waiter: Waiter, workflow_ids: list[str], why: str) -> None:
        rescue_id = rescue_id_of(waiter)
        if not await take_over_wait(self._context, waiter, rescue_id):
            return
        log.warning(
            "allocation_rescued", allocation_id=str(waiter.allocation_id), state=waiter.state.value, why=why,
            replaced=workflow_ids, workflow_id=rescue_id,
        )  # fmt: skip
        RESCUED.labels(why).inc()
        reach(CrashPoint.RESCUE_BEFORE_START)
        await self._starter.start_rescue(workflow_of(waiter), waiter.allocation_id)
        reach(CrashPoint.RESCUE_AFTER_START)

    async def _repeat_signal(self, waiter: Waiter, workflow_id: str) -> None:
        """Send the signal that the event of an ended task should have sent; a duplicate signal has no effect."""
        if not waiter.task_ended or waiter.task_id is None or waiter.waits_for is not Wait.NODE:
            return
        if await self._starter.signal_task_finished(workflow_id, waiter.task_id):
            log.warning("workflow_woken", allocation_id=str(waiter.allocation_id), workflow_id=workflow_id)
            RESCUED.labels("signal_lost").inc()


def workflow_of(waiter: Waiter) -> WorkflowName:
    """The workflow that continues the allocation."""
    if waiter.state is AllocationState.ACTIVE:
        return "verb"
    return "provisioning" if waiter.state in BEFORE_PROVISIONED else "release"


def rescue_id_of(waiter: Waiter) -> str:
    """The id of the workflow that replaces a lost one."""
    return rescue_workflow_id(workflow_of(waiter), waiter.allocation_id)


def responsible_workflow_ids(waiter: Waiter) -> list[str] | None:
    """Ids of every workflow that may continue this wait; None if an undelivered event may still start one. Pure.

    The workflow that issued the newest task continues with it. Before the first task it is the workflow of the event
    with the claim's newest fence, which counts only after the consumer has acknowledged the event.
    """
    issuer = [] if waiter.notify is None else [waiter.notify]
    if waiter.waits_for in (Wait.NODE, Wait.RETRY):
        return issuer
    from_event = []
    if waiter.event_id is not None:
        if waiter.event_version is None or waiter.position < waiter.event_version:
            return None
        from_event = [event_workflow_id(WORKFLOWS[waiter.event_type or ""], waiter.event_id)]
    elif waiter.waits_for is Wait.WORKER:
        return None
    return [*from_event, *issuer, rescue_id_of(waiter)]
