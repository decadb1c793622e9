"""What deploy systems ask the node listener: hello, their task, its result. Their certificate identifies them."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from node_agent.protocol import KNOWN_TASKS_MAX, Envelope, HandedOutTask, ResultAnswer, WaitAnswer
from node_agent.wire.deploy_enrolment import DeployHello, DeployHelloAnswer, DeployResultReport
from orchestrator.http.metrics import TASKS_DISPATCHED
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.services import Parts
from orchestrator.nodes.commands.deploy_enrolment import record_deploy_hello
from orchestrator.nodes.commands.deploy_tasks import accept_deploy_result, lease_deploy_task
from orchestrator.nodes.deploy_systems.identity import DeployCaller

router = APIRouter(responses=PROBLEM_RESPONSES)

WAIT_SECONDS_MAX: Final = 30.0
POLL_SECONDS: Final = 1.0
"""Between two reads of a waiting deploy system; there are few, for minutes each."""


@router.post("/hello")
async def hello(body: DeployHello, request: Request, caller: DeployCaller, parts: Parts) -> DeployHelloAnswer:
    """The deploy system has started: its tasks are signed from now on. The same hello again changes nothing."""
    await record_deploy_hello(parts.context, caller.standing, body, request.scope["state"]["request_id"])
    return DeployHelloAnswer(server_time=caller.standing.server_time, ends_at=caller.standing.not_after)


@router.get("/tasks/wait")
async def wait_for_task(
    caller: DeployCaller,
    parts: Parts,
    response: Response,
    known: Annotated[list[UUID], Query(max_length=KNOWN_TASKS_MAX)] = [],  # noqa: B006 - FastAPI copies it
    timeout_seconds: Annotated[float, Query(ge=0, le=WAIT_SECONDS_MAX)] = WAIT_SECONDS_MAX,
) -> WaitAnswer:
    """The task of this deploy system, as soon as there is one that it does not know."""
    response.headers["cache-control"] = "no-store"  # a task may hold user data
    began = time.monotonic()
    deadline = began + timeout_seconds
    while True:
        leased = await lease_deploy_task(parts.context, caller.standing, caller.serial, known)
        if leased or parts.dispatcher.closed or time.monotonic() + POLL_SECONDS > deadline:
            break
        await asyncio.sleep(POLL_SECONDS)
    if leased:
        TASKS_DISPATCHED.labels("deploy_system").inc(len(leased))
    tasks = [HandedOutTask(task_id=task.task_id, envelope=Envelope.model_validate(task.envelope)) for task in leased]
    # The database's clock, as in the answer to a hello: this host's may be another, and the deploy system has no third.
    return WaitAnswer(
        tasks=tasks, server_time=caller.standing.server_time + timedelta(seconds=time.monotonic() - began)
    )


@router.post("/tasks/{task_id}/result")
async def report_result(task_id: UUID, report: DeployResultReport, caller: DeployCaller, parts: Parts) -> ResultAnswer:
    """How the task ended. The same report again is acknowledged and changes nothing."""
    standing = caller.standing
    return await accept_deploy_result(
        parts.context, standing.node_id, standing.deploy_epoch, caller.serial, task_id, report
    )
