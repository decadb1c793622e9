"""`POST /node/v1/certificate`: renewal, authenticated by the certificate that is still valid. `GET /node/v1/key-set`."""

from __future__ import annotations

from fastapi import APIRouter, Request

from node_agent.attestation.wire import AttestationChallenge, AttestedCertificateRequest, TpmKeys
from node_agent.key_set import KeySetEnvelope
from node_agent.protocol import Credentials
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.services import Parts, required_key_set
from orchestrator.nodes.attestation_wire import answer_of, challenge_document, structure
from orchestrator.nodes.commands.attestation import challenge_renewal
from orchestrator.nodes.commands.certificates import renew_certificate
from orchestrator.nodes.enrolment_endpoints import credentials
from orchestrator.nodes.identity import NodeCaller

router = APIRouter(responses=PROBLEM_RESPONSES)


@router.post("/certificate")
async def renew(body: AttestedCertificateRequest, request: Request, caller: NodeCaller, parts: Parts) -> Credentials:
    """The successor of the presented certificate, for the key of the signing request; the old one stays valid until its end.

    Repeated with the same key, the same certificate. Another key after that is a fork: 403 `identity_conflict`, and the node
    is suspended. With the key of the presented certificate: that certificate, with the present key set. A node with a TPM
    proves it: 403 `attestation_required` or `attestation_refused`.
    """
    required_key_set(parts)
    renewed = await renew_certificate(
        parts.context, caller.node_id, caller.serial,
        csr_pem=body.csr_pem, answer=answer_of(body.attestation), request_id=request.scope["state"]["request_id"],
        wait_seconds_max=parts.settings.certificate_wait_seconds,
    )  # fmt: skip
    return credentials(parts, renewed.node_id, renewed.epoch, renewed.certificate_pem, renewed.server_time)


@router.post("/certificate/challenge")
async def challenge(body: TpmKeys, request: Request, caller: NodeCaller, parts: Parts) -> AttestationChallenge:
    """A challenge for the node's TPM, which the next renewal answers; empty if none is needed."""
    made = await challenge_renewal(
        parts.context, caller.node_id, caller.serial,
        ek_public=structure(body.ek_public, "ek_public"), ak_public=structure(body.ak_public, "ak_public"),
        request_id=request.scope["state"]["request_id"],
    )  # fmt: skip
    return challenge_document(made)


@router.get("/key-set")
async def find_key_set(caller: NodeCaller, parts: Parts) -> KeySetEnvelope:
    """The keys that sign tasks and the CAs of the node listener, signed by the offline root, which agents pin."""
    return KeySetEnvelope.model_validate(required_key_set(parts).envelope)
