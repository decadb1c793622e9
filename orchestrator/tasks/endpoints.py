"""A node's tasks: wait for them, tell how they go, tell how they ended; and its heartbeat."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
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
from orchestrator.http.services import Parts
from orchestrator.nodes.commands.heartbeat import record_heartbeat
from orchestrator.nodes.identity import NodeCaller
from orchestrator.tasks.commands.lease import repeat_tasks
from orchestrator.tasks.store.dispatch import Dispatched

router = APIRouter(responses=PROBLEM_RESPONSES)


@router.get("/tasks/wait")
async def wait_for_tasks(
    caller: NodeCaller,
    parts: Parts,
    response: Response,
    known: Annotated[list[UUID], Query(max_length=KNOWN_TASKS_MAX)] = [],  # noqa: B006 - FastAPI copies it
    timeout_seconds: Annotated[float, Query(ge=0, le=WAIT_SECONDS_MAX)] = 30.0,
) -> WaitAnswer:
    """Tasks for this node, as soon as there are any. `known` names those it has journaled and not finished."""
    response.headers["cache-control"] = "no-store"  # a task may hold user data
    again = await repeat_tasks(parts.context, caller.node_id, caller.epoch, known)
    if again:
        TASKS_DISPATCHED.labels("again").inc(len(again))
        return _answer(again)
    return _answer(await parts.dispatcher.wait(caller.node_id, caller.serial, timeout_seconds))


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
    allowed = parts.settings.sandbox_allowed
    answer = await record_heartbeat(parts.context, caller.node_id, body, sandbox_allowed=allowed)
    serial = None if parts.key_set is None else parts.key_set.current().serial
    return answer.model_copy(update={"key_set_serial": serial})
