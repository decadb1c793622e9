"""`POST /api/v1/sites/enroll`: how an agent of a site without a certificate gets its first, as a node does."""

from __future__ import annotations

from fastapi import APIRouter, Request

from node_agent.protocol import Credentials
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.services import Parts, required_key_set, source_of
from orchestrator.nodes.enrolment_endpoints import credentials
from orchestrator.sites.commands.agents import enrol_agent
from orchestrator.sites.queries import require_known_agent_token
from orchestrator.sites.schemas import EnrolAgent
from orchestrator.tenants.required_roles import without_roles

router = APIRouter(tags=["site"], responses=PROBLEM_RESPONSES)


@router.post("/api/v1/sites/enroll")
@without_roles
async def enrol(body: EnrolAgent, request: Request, parts: Parts) -> Credentials:
    """A certificate for the key of the signing request, against a one-time token; `node_id` is the id of the agent."""
    required_key_set(parts)
    async with parts.credentials.attempt(body.token, source_of(request.scope)) as digest:
        await require_known_agent_token(parts.context.database.for_platform(), digest)
    enrolled = await enrol_agent(
        parts.context.for_platform(), token=body.token, hardware_id=body.hardware_id, csr_pem=body.csr_pem,
        request_id=request.scope["state"]["request_id"], wait_seconds_max=parts.settings.certificate_wait_seconds,
    )  # fmt: skip
    return credentials(parts, enrolled.agent_id, enrolled.epoch, enrolled.certificate_pem, enrolled.server_time)
