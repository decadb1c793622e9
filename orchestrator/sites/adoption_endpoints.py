"""Adoption of machines that run already, for operators."""

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
from orchestrator.nodes.deploy_systems.endpoints import addresses_of, network_of
from orchestrator.sites import queries
from orchestrator.sites.adoption_schemas import Adoption, AdoptMachine
from orchestrator.sites.commands.adoptions import AdoptionOrder, adopt_machine
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, FLEET, NO_TENANT

router = APIRouter(prefix="/nodes/{node_id}/adoption", tags=["admin: sites"], responses=PROBLEM_RESPONSES)


@router.post("", response_model=Adoption)
@requires(tenant=NO_TENANT, operator=FLEET)
async def adopt(node_id: UUID, body: AdoptMachine, write: AdminWrite) -> Response:
    """Record a machine that runs already as an active allocation of its tenant; nothing is commanded or written on it.

    Its BMC must have described it, switched on, within the last 15 minutes. A release inspects it first, and wipes it then.
    """
    order = AdoptionOrder(
        tenant_id=body.tenant_id, sku=body.sku, image=body.image, ssh_key_ids=tuple(dict.fromkeys(body.ssh_key_ids)),
        name=body.name, labels=body.labels, ends_at=body.ends_at, connection=body.connection.model_dump(),
        network=network_of(body.network), macs=tuple(body.macs), require_tpm=body.require_tpm,
        smbios_uuid=None if body.smbios_uuid is None else UUID(body.smbios_uuid), serial=body.serial,
    )  # fmt: skip
    operation, addresses = write.operation(body), addresses_of(write.parts)
    return answer_response(await adopt_machine(write.context, operation, write.actor, node_id, order, addresses))


@router.get("", response_model=Adoption)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find(node_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """The adoption of the allocation that is on the node."""
    return json_response(await queries.find_adoption(parts.context.database, node_id))
