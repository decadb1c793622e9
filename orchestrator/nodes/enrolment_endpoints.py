"""`POST /api/v1/nodes/enroll`: how a node without a certificate gets its first (DESIGN §8)."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from fastapi import APIRouter, Request

from node_agent.protocol import Credentials
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.services import Parts, Services
from orchestrator.nodes.commands.enrolment import enrol_node
from orchestrator.nodes.key_set_file import CarriedKeySet
from orchestrator.nodes.schemas import Enrol
from orchestrator.problems import NotFound
from orchestrator.tenants.required_roles import without_roles

router = APIRouter(tags=["node"])


@router.post("/api/v1/nodes/enroll", responses=PROBLEM_RESPONSES)
@without_roles
async def enrol(body: Enrol, request: Request, parts: Parts) -> Credentials:
    """A certificate for the key of the signing request, against a one-time token."""
    required_key_set(parts)
    enrolled = await enrol_node(
        parts.context.for_platform(),  # a node belongs to no tenant
        token=body.token,
        hardware_id=body.hardware_id,
        csr_pem=body.csr_pem,
        request_id=request.scope["state"]["request_id"],
        wait_seconds_max=parts.settings.certificate_wait_seconds,
    )
    return credentials(parts, enrolled.node_id, enrolled.epoch, enrolled.certificate_pem, enrolled.server_time)


def required_key_set(parts: Services) -> CarriedKeySet:
    """The key set that agents get, or `NotFound` where this process has none."""
    if parts.key_set is None:
        raise NotFound("this process enrols no nodes; it has no BERTH_KEY_SET_FILE")
    return parts.key_set.current()


def credentials(parts: Services, node_id: UUID, epoch: int, certificate_pem: str, server_time: datetime) -> Credentials:
    """The credentials of a node: its identity, the key set, and the address to ask."""
    key_set = required_key_set(parts)
    return Credentials(
        node_id=node_id,
        node_epoch=epoch,
        certificate_pem=certificate_pem,
        ca_pem=key_set.ca_pem,
        node_api_url=parts.settings.node_api_url,
        verifying_keys=key_set.verifying_keys,
        key_set=key_set.envelope,
        server_time=server_time,
    )
