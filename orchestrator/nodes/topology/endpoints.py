"""The topology of a node: show, approve."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite
from orchestrator.nodes.commands.topologies import approve_topology
from orchestrator.nodes.topology import queries
from orchestrator.nodes.topology.documents import topology_document
from orchestrator.nodes.topology.schemas import ApproveTopology, NodeTopology
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, FLEET, NO_TENANT

router = APIRouter(prefix="/nodes/{node_id}", tags=["admin: nodes"], responses=PROBLEM_RESPONSES)


@router.get("/topology", response_model=NodeTopology)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find(node_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """What the node is made of: found last, approved, and what differs."""
    return json_response(topology_document(await queries.find_topology(parts.context.database, node_id)))


@router.post("/approve", response_model=NodeTopology)
@requires(tenant=NO_TENANT, operator=FLEET)
async def approve(node_id: UUID, body: ApproveTopology, write: AdminWrite) -> Response:
    """Approve the topology that was found last; slots that differed serve again."""
    answer = await approve_topology(write.context, write.operation(body), write.actor, node_id, digest=body.digest)
    write.parts.catalogue.forget()
    return answer_response(answer)
