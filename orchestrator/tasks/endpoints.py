"""A node's tasks: wait for them, tell how they go, tell how they ended; and its heartbeat."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query, Response

from node_agent.protocol import (
    KNOWN_TASKS_MAX,
    WAIT_SECONDS_MAX,
    Envelope,
    HandedOutTask,
    Heartbeat,
    HeartbeatAnswer,
    ProgressReport,
    ResultAnswer,
    ResultReport,
    WaitAnswer,
)
from orchestrator.allocations.commands.task_results import accept_task_result, record_task_progress
from orchestrator.http.metrics import TASKS_DISPATCHED
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.services import Parts, Services
from orchestrator.nodes.certificates import NodeIdentity
from orchestrator.nodes.commands.heartbeat import record_heartbeat
from orchestrator.nodes.identity import NodeCaller
from orchestrator.nodes.queries import find_standing
from orchestrator.nodes.store.certificates import CONFLICT, NOT_COUNTED
from orchestrator.problems import IdentityConflict, Unauthenticated
from orchestrator.tasks.commands.lease import repeat_tasks
from orchestrator.tasks.store.dispatch import Dispatched
from orchestrator.tasks.store.heartbeats import NodeReport

router = APIRouter(responses=PROBLEM_RESPONSES)
NO_STORE: Final = {"cache-control": "no-store"}
"""A task may hold user data."""
WAIT_SECONDS: Final = 30.0
KnownTasks = Annotated[list[UUID], Query(max_length=KNOWN_TASKS_MAX)]
WaitSeconds = Annotated[float, Query(ge=0, le=WAIT_SECONDS_MAX)]


@router.get("/tasks/wait")
async def wait_for_tasks(
    caller: NodeCaller,
    parts: Parts,
    response: Response,
    known: KnownTasks = [],  # noqa: B006 - FastAPI copies it
    timeout_seconds: WaitSeconds = WAIT_SECONDS,
) -> WaitAnswer:
    """Tasks for this node, as soon as there are any. `known` names those it has journaled and not finished."""
    response.headers.update(NO_STORE)
    return await next_tasks(parts, NodeIdentity(caller.node_id, caller.serial), known, timeout_seconds)


async def next_tasks(
    parts: Services, node: NodeIdentity, known: Collection[UUID], timeout_seconds: float
) -> WaitAnswer:
    """The node's dispatched tasks that it does not know, else its next ones. Raises `Unauthenticated`, `IdentityConflict`."""
    again = await _repeated(parts, node, known)
    return _answer(again or await parts.dispatcher.wait(node.node_id, node.serial, timeout_seconds))


async def _repeated(parts: Services, node: NodeIdentity, known: Collection[UUID]) -> list[Dispatched]:
    polling = await parts.polls.outcome((node.node_id, node.serial))
    if polling is None:
        raise Unauthenticated(NOT_COUNTED)
    if polling.in_conflict:
        raise IdentityConflict(CONFLICT)
    if not polling.dispatched <= set(known):
        again = await repeat_tasks(parts.context, node.node_id, polling.epoch, list(known))
        if again:
            TASKS_DISPATCHED.labels("again").inc(len(again))
            return again
    return []


def _answer(tasks: list[Dispatched]) -> WaitAnswer:
    handed_out = [
        HandedOutTask(task_id=task.task_id, envelope=Envelope.model_validate(task.envelope)) for task in tasks
    ]
    return WaitAnswer(tasks=handed_out, server_time=datetime.now(UTC))


@router.post("/tasks/{task_id}/result")
async def report_result(task_id: UUID, report: ResultReport, caller: NodeCaller, parts: Parts) -> ResultAnswer:
    """How a task ended. A result that no longer counts is acknowledged and changes nothing."""
    return await accept_task_result(parts.context, caller.node_id, caller.epoch, task_id, report)


@router.post("/tasks/{task_id}/progress", status_code=204)
async def report_progress(task_id: UUID, report: ProgressReport, caller: NodeCaller, parts: Parts) -> None:
    """A phase of a running task, for the timeline."""
    await record_task_progress(parts.context, caller.node_id, task_id, report)


@router.post("/heartbeat")
async def heartbeat(body: Heartbeat, caller: NodeCaller, parts: Parts) -> HeartbeatAnswer:
    """Record the node's heartbeat, and the inventory that it reports. The response names the key set to fetch."""
    return await hear(parts, NodeIdentity(caller.node_id, caller.serial), body)


async def hear(parts: Services, node: NodeIdentity, body: Heartbeat) -> HeartbeatAnswer:
    """Record a heartbeat: together with those of other nodes if it changes nothing, else in a separate transaction.

    Raises `Unauthenticated`, `IdentityConflict`, `DriverRefused`.
    """
    answer = await parts.heartbeats.outcome(NodeReport(node.node_id, node.serial, body))
    if answer is None:
        await find_standing(parts.context.database, node.node_id, node.serial)
        allowed = parts.settings.sandbox_allowed
        answer = await record_heartbeat(parts.context, node.node_id, body, sandbox_allowed=allowed)
    serial = None if parts.key_set is None else parts.key_set.current().serial
    return answer.model_copy(update={"key_set_serial": serial})
