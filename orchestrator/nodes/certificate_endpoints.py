"""`POST /node/v1/certificate`: renewal, authenticated by the certificate that is still valid."""

from __future__ import annotations

from fastapi import APIRouter

from node_agent.protocol import CertificateRequest, Credentials
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.services import Parts
from orchestrator.nodes.commands.certificates import renew_certificate
from orchestrator.nodes.enrolment_endpoints import credentials, required_authority
from orchestrator.nodes.identity import NodeCaller

router = APIRouter(responses=PROBLEM_RESPONSES)


@router.post("/certificate")
async def renew(body: CertificateRequest, caller: NodeCaller, parts: Parts) -> Credentials:
    """A certificate for the key of the signing request, of the same epoch; the old one stays good until its end."""
    authority = required_authority(parts)
    renewed = await renew_certificate(parts.context, authority, caller.node_id, caller.serial, csr_pem=body.csr_pem)
    return credentials(parts, renewed.node_id, renewed.epoch, renewed.certificate_pem, renewed.server_time)
