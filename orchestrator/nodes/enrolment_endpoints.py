"""`POST /api/v1/nodes/enroll`: how a node without a certificate gets its first (DESIGN §8)."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from fastapi import APIRouter, Request

from node_agent.attestation.wire import AttestationChallenge
from node_agent.protocol import Credentials
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.services import Parts, Services, required_key_set, source_of
from orchestrator.nodes.attestation_wire import answer_of, challenge_document, structure
from orchestrator.nodes.commands.attestation import challenge_enrolment
from orchestrator.nodes.commands.enrolment import EnrolmentRequest, enrol_node
from orchestrator.nodes.queries import require_known_token
from orchestrator.nodes.schemas import ChallengeEnrolment, Enrol
from orchestrator.tenants.required_roles import without_roles

router = APIRouter(tags=["node"])


@router.post("/api/v1/nodes/enroll", responses=PROBLEM_RESPONSES)
@without_roles
async def enrol(body: Enrol, request: Request, parts: Parts) -> Credentials:
    """A certificate for the key of the signing request, against a one-time token.

    A node with a TPM proves it: 403 `attestation_required` or `attestation_refused`; the token may be used again.
    """
    required_key_set(parts)
    await _require_known(request, parts, body.token)
    wanted = EnrolmentRequest(
        body.token, body.hardware_id, body.csr_pem, answer_of(body.attestation), request.scope["state"]["request_id"]
    )
    enrolled = await enrol_node(
        parts.context.for_platform(),  # a node belongs to no tenant
        wanted,
        wait_seconds_max=parts.settings.certificate_wait_seconds,
    )
    return credentials(parts, enrolled.node_id, enrolled.epoch, enrolled.certificate_pem, enrolled.server_time)


@router.post("/api/v1/nodes/enroll/challenge", responses=PROBLEM_RESPONSES)
@without_roles
async def challenge(body: ChallengeEnrolment, request: Request, parts: Parts) -> AttestationChallenge:
    """A challenge for the TPM of the node that the token is for, which its enrolment answers; empty if none is needed."""
    await _require_known(request, parts, body.token)
    made = await challenge_enrolment(
        parts.context.for_platform(),
        token=body.token,
        hardware_id=body.hardware_id,
        ek_public=structure(body.tpm.ek_public, "tpm.ek_public"),
        ak_public=structure(body.tpm.ak_public, "tpm.ak_public"),
        request_id=request.scope["state"]["request_id"],
    )
    return challenge_document(made)


async def _require_known(request: Request, parts: Services, token: str) -> None:
    """One lookup, before anything else of the body is evaluated; an unknown token is a failed attempt of its source."""
    async with parts.credentials.attempt(token, source_of(request.scope)) as digest:
        await require_known_token(parts.context.database.for_platform(), digest)


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
