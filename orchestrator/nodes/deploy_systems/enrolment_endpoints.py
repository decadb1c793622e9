"""`POST /api/v1/deploy-systems/enroll`: how a deploy system gets its certificate, on the public listener."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Request

from node_agent.attestation.wire import AttestationChallenge
from node_agent.wire.deploy_enrolment import DeployCredentials, MachineProof
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.services import Parts, Services, required_key_set, source_of
from orchestrator.nodes.attestation_wire import answer_of, challenge_document, structure
from orchestrator.nodes.commands.deploy_enrolment import (
    DeployEnrolment,
    challenge_deploy_system,
    enrol_deploy_system,
    presented_key,
)
from orchestrator.nodes.deploy_systems.metrics import ENROLMENTS
from orchestrator.nodes.deploy_systems.queries import require_known_token
from orchestrator.nodes.deploy_systems.refusals import DeployRefused
from orchestrator.nodes.deploy_systems.rules import Presented
from orchestrator.nodes.deploy_systems.schemas import ChallengeDeploySystem, EnrolDeploySystem
from orchestrator.tenants.required_roles import without_roles

router = APIRouter(prefix="/api/v1/deploy-systems", tags=["node"], responses=PROBLEM_RESPONSES)


@router.post("/enroll")
@without_roles
async def enrol(body: EnrolDeploySystem, request: Request, parts: Parts) -> DeployCredentials:
    """A certificate for minutes, against the one-time token of a medium and the machine that it is for.

    403 `deploy_refused` says why; 403 `attestation_required` or `attestation_refused` for a machine with a TPM.
    """
    key_set = required_key_set(parts)
    await _require_known(request, parts, body.token)
    wanted = DeployEnrolment(
        body.token, _presented(body.deploy_epoch, body.machine, presented_key(body.csr_pem)), body.csr_pem,
        answer_of(body.attestation), request.scope["state"]["request_id"],
    )  # fmt: skip
    try:
        enrolled = await enrol_deploy_system(
            parts.context.for_platform(), wanted, wait_seconds_max=parts.settings.certificate_wait_seconds
        )
    except DeployRefused as refused:
        ENROLMENTS.labels(refused.extra["reason"]).inc()
        raise
    ENROLMENTS.labels("issued").inc()
    return DeployCredentials(
        node_id=enrolled.node_id, deploy_epoch=enrolled.deploy_epoch, certificate_pem=enrolled.certificate_pem,
        key_set=key_set.envelope, ends_at=enrolled.ends_at, server_time=enrolled.server_time,
    )  # fmt: skip


@router.post("/enroll/challenge")
@without_roles
async def challenge(body: ChallengeDeploySystem, request: Request, parts: Parts) -> AttestationChallenge:
    """A challenge for the TPM of the machine that the token is for, which its enrolment answers; empty if none is needed."""
    await _require_known(request, parts, body.token)
    made = await challenge_deploy_system(
        parts.context.for_platform(), body.token, _presented(body.deploy_epoch, body.machine, None),
        ek_public=structure(body.tpm.ek_public, "tpm.ek_public"),
        ak_public=structure(body.tpm.ak_public, "tpm.ak_public"), request_id=request.scope["state"]["request_id"],
    )  # fmt: skip
    return challenge_document(made)


def _presented(deploy_epoch: int, machine: MachineProof, key_sha256: bytes | None) -> Presented:
    return Presented(deploy_epoch, UUID(machine.smbios_uuid), machine.macs, key_sha256)


async def _require_known(request: Request, parts: Services, token: str) -> None:
    """One lookup, before anything else of the body is evaluated; an unknown token is a failed attempt of its source."""
    async with parts.credentials.attempt(token, source_of(request.scope)) as digest:
        await require_known_token(parts.context.database.for_platform(), digest)
