"""Segments of sites and switch ports of machines, for operators."""

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
from orchestrator.sites.port_schemas import MovePorts, NodePorts, PutPorts, PutSegments, SiteSegments
from orchestrator.sites.ports import queries
from orchestrator.sites.ports.commands import put_ports, put_segments, request_move
from orchestrator.sites.ports.rules import Port, Verb
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, FLEET, NO_TENANT

router = APIRouter(tags=["admin: sites"], responses=PROBLEM_RESPONSES)


@router.get("/sites/{site_id}/segments", response_model=SiteSegments)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find_segments(site_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """The VLANs of a site, and which of them tenants have."""
    return json_response(await queries.find_segments(parts.context.database, site_id))


@router.put("/sites/{site_id}/segments", response_model=SiteSegments)
@requires(tenant=NO_TENANT, operator=FLEET)
async def set_segments(site_id: UUID, body: PutSegments, write: AdminWrite) -> Response:
    """Set the VLAN that machines of the site are provisioned in, and those that are leased to tenants."""
    vlans = (body.first_tenant_vlan, body.last_tenant_vlan)
    return answer_response(
        await put_segments(
            write.context, write.operation(body), write.actor, site_id, body.provisioning_vlan, vlans,
            body.quarantine_seconds,
        )
    )  # fmt: skip


@router.get("/nodes/{node_id}/ports", response_model=NodePorts)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find_ports(node_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """The switch ports of a machine, where they are to be, what was proven, and what the inspection heard there."""
    return json_response(await queries.find_ports(parts.context.database, node_id))


@router.put("/nodes/{node_id}/ports", response_model=NodePorts)
@requires(tenant=NO_TENANT, operator=FLEET)
async def set_ports(node_id: UUID, body: PutPorts, write: AdminWrite) -> Response:
    """Set the switch ports of a machine, all of them: from then on its runs move them."""
    ports = [Port(one.switch, one.port, one.mac) for one in body.ports]
    return answer_response(await put_ports(write.context, write.operation(body), write.actor, node_id, ports))


@router.post("/nodes/{node_id}/ports/move", response_model=NodePorts)
@requires(tenant=NO_TENANT, operator=FLEET)
async def move_ports(node_id: UUID, body: MovePorts, write: AdminWrite) -> Response:
    """Have the site's agent move the ports, or compare them, and read them back."""
    return answer_response(
        await request_move(write.context, write.operation(body), write.actor, node_id, Verb(body.to))
    )
