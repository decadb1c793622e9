"""Starts and wakes workflows. Both are repeatable: an event that comes twice changes nothing (TRAPS, Temporal)."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from uuid import UUID

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from worker.workflows.waking import TASK_FINISHED


class WorkflowStanding(StrEnum):
    """What Temporal knows of a workflow. `unknown`: no run of that id is kept; it never was, or was lost."""

    RUNS = "runs"
    CLOSED = "closed"
    UNKNOWN = "unknown"


_RUNNING = frozenset({WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW, None})


class WorkflowStarter:
    """Knows the client and the task queue. After `step_seconds` without a sign of its worker, a step goes to another."""

    def __init__(self, client: Client, task_queue: str, step_seconds: float) -> None:
        self._client = client
        self._task_queue = task_queue
        self._step_timeout = timedelta(seconds=step_seconds)

    async def start(self, workflow: str, workflow_id: str, allocation_id: UUID) -> bool:
        """Start, unless that id runs or has completed; one that failed or was terminated starts anew. False if completed.

        The first command of every workflow checks the allocation's row, so a start too many does no harm.
        """
        try:
            await self._client.start_workflow(
                workflow,
                str(allocation_id),
                id=workflow_id,
                task_queue=self._task_queue,
                task_timeout=self._step_timeout,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                request_eager_start=True,
            )
        except WorkflowAlreadyStartedError:
            return False
        return True

    async def start_rescue(self, workflow: str, workflow_id: str, allocation_id: UUID) -> None:
        """Start, unless that id runs now; for sweepers, whose reason may come again."""
        await self._client.start_workflow(
            workflow,
            str(allocation_id),
            id=workflow_id,
            task_queue=self._task_queue,
            task_timeout=self._step_timeout,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )

    async def standing(self, workflow_id: str) -> WorkflowStanding:
        """Whether a workflow of that id runs, by Temporal's own word. Raises `RPCError` if that cannot be had."""
        try:
            found = await self._client.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            # A namespace that is not found says nothing about a workflow.
            if error.status is RPCStatusCode.NOT_FOUND and "namespace" not in error.message.lower():
                return WorkflowStanding.UNKNOWN
            raise
        return WorkflowStanding.RUNS if found.status in _RUNNING else WorkflowStanding.CLOSED

    async def wake(self, workflow_id: str, task_id: UUID) -> bool:
        """Tell a workflow that its task has ended; False if it is closed or unknown, which is nothing to worry about."""
        try:
            await self._client.get_workflow_handle(workflow_id).signal(TASK_FINISHED, str(task_id))
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        return True
