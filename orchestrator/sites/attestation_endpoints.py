"""Attestations on demand, for operators."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.fields import Nothing
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite
from orchestrator.nodes.attestation import queries
from orchestrator.nodes.attestation.schemas import AcceptAttestation, Attestation, NodeAttestations
from orchestrator.nodes.deploy_systems.endpoints import addresses_of
from orchestrator.sites.commands.attestations import accept_attestation, request_attestation
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, FLEET, NO_TENANT

router = APIRouter(prefix="/nodes/{node_id}/attestation", tags=["admin: nodes"], responses=PROBLEM_RESPONSES)


@router.post("", response_model=Attestation)
@requires(tenant=NO_TENANT, operator=FLEET)
async def request(node_id: UUID, write: AdminWrite, body: Nothing | None = None) -> Response:
    """Have the TPM of a node quote a new nonce, by its agent or by a run of its machine. An open one is the answer."""
    answer = await request_attestation(
        write.context, write.operation(), write.actor, node_id, lambda: addresses_of(write.parts)
    )
    return answer_response(answer)


@router.get("", response_model=NodeAttestations)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find(node_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """The newest attestation of a node with its evidence, the earlier ones, and the PCRs that are accepted."""
    return json_response(await queries.find_attestations(parts.context.database, node_id))


@router.post("/accept", response_model=NodeAttestations)
@requires(tenant=NO_TENANT, operator=FLEET)
async def accept(node_id: UUID, body: AcceptAttestation, write: AdminWrite) -> Response:
    """Compare later attestations of the node with the PCRs that this one has proven."""
    answer = await accept_attestation(
        write.context, write.operation(body), write.actor, node_id, body.attestation_id
    )  # fmt: skip
    return answer_response(answer)
