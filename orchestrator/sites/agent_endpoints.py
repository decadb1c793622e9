"""`/site/v1` on the node listener: what agents of sites call, identified by their certificates."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from node_agent.key_set import KeySetEnvelope
from node_agent.protocol import CertificateRequest, Credentials, Envelope, HandedOutTask
from node_agent.wire.firmware import StoredProgress, StoreProgress
from node_agent.wire.sites import (
    KNOWN_BMC_TASKS_MAX,
    MACHINES_MAX,
    WAIT_SECONDS_MAX,
    BmcTaskAnswer,
    BmcTaskReport,
    BmcTasks,
    LeaseAnswer,
    LeaseRequest,
    LivenessAnswer,
    LivenessReport,
    SiteMachine,
    SiteMachines,
    StoredPassword,
    StorePassword,
)
from orchestrator.consoles.commands import lease_machine_sessions
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.services import Parts, required_key_set
from orchestrator.http.types.numbers import QUERY_INT64_MAX
from orchestrator.nodes.enrolment_endpoints import credentials
from orchestrator.sites.commands.agents import renew_agent_certificate
from orchestrator.sites.commands.leases import lease_bmc_tasks, take_site_lease
from orchestrator.sites.commands.liveness import note_answers
from orchestrator.sites.commands.reports import accept_bmc_report, keep_progress, store_password
from orchestrator.sites.identity import SiteCaller
from orchestrator.sites.metrics import LEASES_REFUSED, TASKS_LEASED
from orchestrator.sites.queries import list_machines

router = APIRouter(responses=PROBLEM_RESPONSES)

BEFORE_ALL = UUID(int=0)
PAUSE_SECONDS = 0.25
"""Between two looks for tasks of a site that waits: one indexed statement for each site, and sites are few."""


def _request_id(request: Request) -> str:
    found: str = request.scope["state"]["request_id"]
    return found


@router.post("/certificate")
async def renew(body: CertificateRequest, request: Request, caller: SiteCaller, parts: Parts) -> Credentials:
    """The successor of the presented certificate, as for nodes; a fork suspends the agent: 403 `identity_conflict`."""
    required_key_set(parts)
    renewed = await renew_agent_certificate(
        parts.context, caller.agent_id, caller.serial, csr_pem=body.csr_pem, request_id=_request_id(request),
        wait_seconds_max=parts.settings.certificate_wait_seconds,
    )  # fmt: skip
    return credentials(parts, renewed.agent_id, renewed.epoch, renewed.certificate_pem, renewed.server_time)


@router.get("/key-set")
async def find_key_set(caller: SiteCaller, parts: Parts) -> KeySetEnvelope:
    """The keys that sign tasks and the CAs of the node listener, signed by the offline root, which agents pin."""
    return KeySetEnvelope.model_validate(required_key_set(parts).envelope)


@router.post("/lease")
async def take_lease(body: LeaseRequest, request: Request, caller: SiteCaller, parts: Parts) -> LeaseAnswer:
    """Take, keep or give up the lease of the site: one process of one agent holds it."""
    seconds = parts.settings.site_lease_seconds
    found = await take_site_lease(parts.context, caller.agent_id, body, seconds, _request_id(request))
    if not found.held and not body.release:
        LEASES_REFUSED.inc()
    serial = None if parts.key_set is None else parts.key_set.current().serial
    return LeaseAnswer(
        site_id=found.site_id, held=found.held, fence=found.fence, seconds=seconds, server_time=found.clock,
        key_set_serial=serial,
    )  # fmt: skip


@router.get("/tasks/wait")
async def wait_for_tasks(
    caller: SiteCaller,
    parts: Parts,
    response: Response,
    run_id: UUID,
    lease_fence: Annotated[int, Query(ge=0, le=QUERY_INT64_MAX)],
    known: Annotated[list[UUID], Query(max_length=KNOWN_BMC_TASKS_MAX)] = [],  # noqa: B006 - FastAPI copies it
    limit: Annotated[int, Query(ge=0, le=KNOWN_BMC_TASKS_MAX)] = 1,
    reach_limit: Annotated[int | None, Query(ge=0, le=KNOWN_BMC_TASKS_MAX)] = None,
    console_limit: Annotated[int, Query(ge=0, le=KNOWN_BMC_TASKS_MAX)] = 0,
    timeout_seconds: Annotated[float, Query(ge=0, le=WAIT_SECONDS_MAX)] = 30.0,
) -> BmcTasks:
    """Tasks of the site for the holder of its lease, as soon as there are any; at once if the caller does not hold it.

    `reach_limit`: at most so many that wait for a machine's SSH server, besides `limit` others; without it they count as those.
    `console_limit`: at most so many sessions of consoles besides, each handed out once.
    """
    response.headers["cache-control"] = "no-store"  # a task has sealed passwords
    deadline = time.monotonic() + timeout_seconds
    while True:
        found = await lease_bmc_tasks(
            parts.context, caller.agent_id, caller.serial, run_id, lease_fence, known, limit, reach_limit
        )
        if found is not None and console_limit > 0:
            found = [
                *found,
                *await lease_machine_sessions(
                    parts.context, caller.agent_id, caller.serial, run_id, lease_fence, console_limit
                ),
            ]
        if found is None or found or time.monotonic() + PAUSE_SECONDS > deadline:
            break
        await asyncio.sleep(PAUSE_SECONDS)
    TASKS_LEASED.inc(len(found or ()))
    tasks = [HandedOutTask(task_id=one.task_id, envelope=Envelope.model_validate(one.envelope)) for one in found or ()]
    return BmcTasks(held=found is not None, tasks=tasks, server_time=datetime.now(UTC))


@router.get("/machines")
async def find_machines(
    caller: SiteCaller,
    parts: Parts,
    run_id: UUID,
    lease_fence: Annotated[int, Query(ge=0, le=QUERY_INT64_MAX)],
    after: UUID = BEFORE_ALL,
) -> SiteMachines:
    """A page of the site's BMCs by node, for the holder of its lease, which asks each whether it answers."""
    found, listed_at = await list_machines(
        parts.context.database, caller.agent_id, caller.serial, run_id, lease_fence, after, MACHINES_MAX
    )
    machines = [
        SiteMachine(node_id=one.node_id, url=one.url, certificate_sha256=one.certificate_sha256) for one in found or ()
    ]
    return SiteMachines(held=found is not None, machines=machines, server_time=listed_at)


@router.post("/machines/answers")
async def report_answers(body: LivenessReport, caller: SiteCaller, parts: Parts) -> LivenessAnswer:
    """Which BMCs of a page answered. A report under a lease that the caller does not hold changes nothing."""
    silent = {one.node_id: one.code for one in body.silent}
    held = await note_answers(
        parts.context,
        caller.agent_id,
        caller.serial,
        body.run_id,
        body.lease_fence,
        body.listed_at,
        body.answered,
        silent,
    )
    return LivenessAnswer(held=held)


@router.post("/tasks/{task_id}/password")
async def keep_password(
    task_id: UUID, body: StorePassword, request: Request, caller: SiteCaller, parts: Parts
) -> StoredPassword:
    """Store a sealed password before the BMC receives it."""
    return await store_password(parts.context, caller.agent_id, task_id, body, _request_id(request))


@router.post("/tasks/{task_id}/progress")
async def store_progress(task_id: UUID, body: StoreProgress, caller: SiteCaller, parts: Parts) -> StoredProgress:
    """How far an update of firmware is: stored before the update is sent, and read by the agent that goes on with it."""
    return await keep_progress(parts.context, caller.agent_id, task_id, body)


@router.post("/tasks/{task_id}/result")
async def report_result(
    task_id: UUID, body: BmcTaskReport, request: Request, caller: SiteCaller, parts: Parts
) -> BmcTaskAnswer:
    """How a task ended. A report under an older lease is acknowledged and changes nothing."""
    return await accept_bmc_report(parts.context, caller.agent_id, task_id, body, _request_id(request))
