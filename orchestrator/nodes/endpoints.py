"""The fleet."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.fields import NODE_PATTERN, Nothing
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, identified_page, page_of
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite, unsealed_response
from orchestrator.nodes import queries as nodes
from orchestrator.nodes.attestation.evidence import fingerprint_of_certificate
from orchestrator.nodes.commands.attestation import set_attestation
from orchestrator.nodes.commands.certificates import revoke_node_certificates
from orchestrator.nodes.commands.drains import drain_node, uncordon_node
from orchestrator.nodes.commands.enrolment import create_enrolment_token
from orchestrator.nodes.commands.nodes import cordon_node, create_node, retire_node
from orchestrator.nodes.commands.updates import update_node
from orchestrator.nodes.drains.rules import AtDeadline, DrainOrder
from orchestrator.nodes.drains.schemas import DrainNode
from orchestrator.nodes.schemas import (
    ChangeNode,
    CreateEnrolmentToken,
    CreateNode,
    EnrolmentToken,
    ListedNode,
    Node,
    NodeQuery,
    RetireNode,
    RevokeCertificates,
    SetAttestation,
)
from orchestrator.nodes.store.updates import NewAddress, NodeChanges
from orchestrator.problems import RoleRequired
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, FLEET, NO_TENANT, OperatorRole

IdOrName = Annotated[str, Path(pattern=NODE_PATTERN, description="id or name")]

router = APIRouter(prefix="/nodes", tags=["admin: nodes"], responses=PROBLEM_RESPONSES)


@router.post("", status_code=201, response_model=Node)
@requires(tenant=NO_TENANT, operator=FLEET)
async def create(body: CreateNode, write: AdminWrite) -> Response:
    """Register a node; its agent enrols with a token."""
    answer = await create_node(
        write.context,
        write.operation(body),
        write.actor,
        name=body.name,
        region=body.region,
        gpu_model=body.gpu_model,
        shape=body.shape.value,
        slot_count=body.slot_count,
        half_slots=body.half_slots,
        address=body.address,
        faults=body.faults or {},
    )
    write.parts.catalogue.forget()
    return answer_response(answer)


@router.get("", response_model=Page[ListedNode])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_all(query: Annotated[NodeQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """The fleet, without slots."""
    after, limit = identified_page(query, "nodes")
    found = await nodes.list_nodes(
        parts.context.database, state=query.state, region=query.region, after=after, limit=limit
    )
    return json_response(page_of(found, query.limit, "nodes", lambda node: node.id))


@router.get("/{node}", response_model=Node)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find(node: IdOrName, caller: AdminCaller, parts: Parts) -> Response:
    """One node by id or name, with its slots and their holders."""
    return json_response(await nodes.find_node(parts.context.database, _id_or_name(node)))


@router.patch("/{node}", response_model=Node)
@requires(tenant=NO_TENANT, operator=FLEET)
async def update(node: IdOrName, body: ChangeNode, write: AdminWrite) -> Response:
    """Change a node's address, or how many of its slots lie in the first NUMA half; what is placed on it stays."""
    address = NewAddress(body.address) if body.has_address else None
    changes = NodeChanges(address, body.half_slots)
    answer = await update_node(write.context, write.operation(body), write.actor, _id_or_name(node), changes)
    write.parts.catalogue.forget()
    return answer_response(answer)


def _id_or_name(text: str) -> UUID | str:
    try:
        return UUID(text)
    except ValueError:
        return text


@router.post("/{node_id}/enrolment-token", status_code=201, response_model=EnrolmentToken)
@requires(tenant=NO_TENANT, operator=FLEET)
async def give_token(node_id: UUID, write: AdminWrite, body: CreateEnrolmentToken | None = None) -> Response:
    """A one-time token for the node's agent; returned in this answer (and in its replays to the same caller) only."""
    wanted = body or CreateEnrolmentToken()
    answer = await create_enrolment_token(
        write.context,
        write.operation(wanted),
        write.caller,
        write.sealer(),
        node_id,
        hardware_id=wanted.hardware_id,
        valid_seconds=wanted.valid_seconds or write.parts.settings.enrolment_token_seconds,
        pin=write.parts.enrolment_pin,
    )
    return unsealed_response(write, answer, "token")


@router.post("/{node_id}/cordon", response_model=Node)
@requires(tenant=NO_TENANT, operator=FLEET)
async def cordon(node_id: UUID, write: AdminWrite, body: Nothing | None = None) -> Response:
    """Place nothing new on a node."""
    return answer_response(await cordon_node(write.context, write.operation(), write.actor, node_id))


@router.post("/{node_id}/uncordon", response_model=Node)
@requires(tenant=NO_TENANT, operator=FLEET)
async def uncordon(node_id: UUID, write: AdminWrite, body: Nothing | None = None) -> Response:
    """Place on a node again."""
    return answer_response(await uncordon_node(write.context, write.operation(), write.actor, node_id))


@router.post("/{node_id}/drain", response_model=Node)
@requires(tenant=NO_TENANT, operator=FLEET)
async def drain(node_id: UUID, write: AdminWrite, body: DrainNode | None = None) -> Response:
    """Empty a node: nothing new is placed, reservations of a SKU are moved, tenants are notified; what runs stays.

    At the deadline allocations are released only if the request says so, which the role `admin` may.
    """
    wanted = body or DrainNode()
    if wanted.at_deadline is AtDeadline.RELEASE and write.caller.role != OperatorRole.ADMIN:
        raise RoleRequired.of(write.caller.role, [OperatorRole.ADMIN])
    order = DrainOrder(wanted.deadline, wanted.at_deadline, wanted.reason)
    operation = write.operation(body)
    return answer_response(
        await drain_node(write.context, operation, write.actor, node_id, order, write.parts.catalogue)
    )


@router.post("/{node_id}/retire", response_model=Node)
@requires(tenant=NO_TENANT, operator=FLEET)
async def retire(node_id: UUID, body: RetireNode, write: AdminWrite) -> Response:
    """Take a node out of the fleet for good; refused while anything holds a unit of it."""
    answer = await retire_node(write.context, write.operation(body), write.actor, node_id, reason=body.reason)
    write.parts.catalogue.forget()
    return answer_response(answer)


@router.put("/{node_id}/attestation", response_model=Node)
@requires(tenant=NO_TENANT, operator=FLEET)
async def put_attestation(node_id: UUID, body: SetAttestation, write: AdminWrite) -> Response:
    """Say whether a node must prove that it has its TPM, and register that TPM, or forget it so that the next one is pinned."""
    ek_sha256 = bytes.fromhex(body.ek_sha256) if body.ek_sha256 else None
    if body.ek_certificate is not None:
        ek_sha256 = fingerprint_of_certificate(body.ek_certificate)
    answer = await set_attestation(
        write.context, write.operation(body), write.actor, node_id,
        policy=body.policy, ek_sha256=ek_sha256, forget_tpm=body.forget_tpm,
    )  # fmt: skip
    return answer_response(answer)


@router.post("/{node_id}/certificates/revoke", response_model=Node)
@requires(tenant=NO_TENANT, operator=FLEET)
async def revoke_certificates(node_id: UUID, body: RevokeCertificates, write: AdminWrite) -> Response:
    """Refuse every certificate of a node from now on; it must enrol again."""
    answer = await revoke_node_certificates(
        write.context, write.operation(body), write.actor, node_id, reason=body.reason
    )
    return answer_response(answer)
