"""Starts and signals workflows. Both are idempotent: a redelivered event has no further effect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID, uuid5

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import Priority, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from worker.activities.messages import StepResult
from worker.workflows.attempts import TASK_FINISHED
from worker.workflows.provisioning import ProvisioningWorkflow
from worker.workflows.release import ReleaseWorkflow
from worker.workflows.verb import VerbWorkflow

WorkflowName = Literal["provisioning", "release", "verb"]

_RUN: dict[WorkflowName, Callable[[Any, str], Awaitable[StepResult]]] = {
    "provisioning": ProvisioningWorkflow.run,
    "release": ReleaseWorkflow.run,
    "verb": VerbWorkflow.run,
}
_ID_PREFIX: dict[WorkflowName, str] = {"provisioning": "provisioning", "release": "releasing", "verb": "verb"}


CALL_TIMEOUT = timedelta(seconds=5)
"""For each call: a Temporal that is frozen holds up the sweepers, which run one after another, no longer."""
_RESCUED = UUID("f9082ac4-c9a3-48c6-9c40-496775f3f703")
"""Namespace of the digests in ids of rescue workflows (RFC 9562, version 5)."""


def event_workflow_id(name: WorkflowName, event_id: UUID) -> str:
    """The id of the workflow that an event starts."""
    return f"{_ID_PREFIX[name]}-{event_id}"


def rescue_workflow_id(name: WorkflowName, allocation_id: UUID) -> str:
    """The id of the workflow that a sweeper starts for an allocation whose own workflow is lost or late.

    Temporal stores it in the clear, so it holds a digest of the allocation's id.
    """
    return f"{_ID_PREFIX[name]}-overdue-{uuid5(_RESCUED, str(allocation_id))}"


class WorkflowStatus(StrEnum):
    """What Temporal knows about a workflow id. `unknown`: it keeps no run of that id."""

    RUNNING = "running"
    CLOSED = "closed"
    UNKNOWN = "unknown"


_RUNNING = frozenset({WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW, None})


class WorkflowStarter:
    """Starts workflows on one task queue. A workflow task without a response for `step_seconds` goes to another worker.

    `digest` makes a tenant's fairness key, which Temporal stores in the clear, from the tenant's id.
    """

    def __init__(self, client: Client, task_queue: str, step_seconds: float, digest: Callable[[str], str]) -> None:
        self._client = client
        self._task_queue = task_queue
        self._step_timeout = timedelta(seconds=step_seconds)
        self._digest = digest

    def use(self, client: Client) -> None:
        """Send every following call over this client."""
        self._client = client

    async def start(
        self, name: WorkflowName, event_id: UUID, allocation_id: UUID, tenant_id: str | None = None
    ) -> bool:
        """Start the event's workflow unless it runs or has completed; restart one that failed. False if completed.

        Workflows that wait for a worker are shared out over the tenants. A superfluous start is harmless: the first
        command of a workflow checks the allocation's row.
        """
        try:
            await self._client.start_workflow(
                _RUN[name],
                str(allocation_id),
                id=event_workflow_id(name, event_id),
                task_queue=self._task_queue,
                task_timeout=self._step_timeout,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                request_eager_start=True,
                rpc_timeout=CALL_TIMEOUT,
                priority=Priority(fairness_key=None if tenant_id is None else self._digest(tenant_id)),
            )
        except WorkflowAlreadyStartedError:
            return False
        return True

    async def start_rescue(self, name: WorkflowName, allocation_id: UUID) -> None:
        """Start the allocation's rescue workflow unless it runs. It may run again later, for another wait."""
        await self._client.start_workflow(
            _RUN[name],
            str(allocation_id),
            id=rescue_workflow_id(name, allocation_id),
            task_queue=self._task_queue,
            task_timeout=self._step_timeout,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            rpc_timeout=CALL_TIMEOUT,
        )

    async def status(self, workflow_id: str) -> WorkflowStatus:
        """Whether Temporal runs a workflow of that id. Raises `RPCError` if Temporal is unavailable."""
        try:
            found = await self._client.get_workflow_handle(workflow_id).describe(rpc_timeout=CALL_TIMEOUT)
        except RPCError as error:
            # NOT_FOUND for the namespace says nothing about the workflow.
            if error.status is RPCStatusCode.NOT_FOUND and "namespace" not in error.message.lower():
                return WorkflowStatus.UNKNOWN
            raise
        return WorkflowStatus.RUNNING if found.status in _RUNNING else WorkflowStatus.CLOSED

    async def store_id(self) -> str:
        """The id of the namespace, which is made with its store and lost with it. Raises `RPCError`, also without a namespace."""
        request = DescribeNamespaceRequest(namespace=self._client.namespace)
        described = await self._client.workflow_service.describe_namespace(request, timeout=CALL_TIMEOUT)
        return described.namespace_info.id

    async def signal_task_finished(self, workflow_id: str, task_id: UUID) -> bool:
        """Signal a workflow that its task has ended. False if it is closed or unknown, which is no error."""
        try:
            await self._client.get_workflow_handle(workflow_id).signal(
                TASK_FINISHED, str(task_id), rpc_timeout=CALL_TIMEOUT
            )
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        return True
