"""Runs of deploy systems on the machines of sites, for operators."""

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
from orchestrator.nodes.deploy_systems.endpoints import addresses_of, network_of
from orchestrator.nodes.deploy_systems.run_rules import RunKind
from orchestrator.sites import queries
from orchestrator.sites.commands.runs import request_run, stop_run
from orchestrator.sites.run_orders import RunOrder
from orchestrator.sites.schemas import DeployRun, RunDeploySystem
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, FLEET, NO_TENANT

router = APIRouter(prefix="/nodes/{node_id}/deploy-system/run", tags=["admin: sites"], responses=PROBLEM_RESPONSES)


@router.post("", response_model=DeployRun)
@requires(tenant=NO_TENANT, operator=FLEET)
async def run(node_id: UUID, write: AdminWrite, body: RunDeploySystem | None = None) -> Response:
    """Have the site's agent start a deploy system on the machine, which does its task, and end it. An open run is the answer."""
    wanted = body or RunDeploySystem()
    order = RunOrder(
        kind=RunKind(wanted.kind), network=None if wanted.network is None else network_of(wanted.network),
        smbios_uuid=None if wanted.smbios_uuid is None else UUID(wanted.smbios_uuid), macs=tuple(wanted.macs),
        require_tpm=wanted.require_tpm, root_disk=wanted.root_disk,
    )  # fmt: skip
    operation, addresses = write.operation(wanted), addresses_of(write.parts)
    return answer_response(await request_run(write.context, operation, write.actor, node_id, order, addresses))


@router.get("", response_model=DeployRun)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find(node_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """The newest run of the node."""
    return json_response(await queries.find_run(parts.context.database, node_id))


@router.post("/stop", response_model=DeployRun)
@requires(tenant=NO_TENANT, operator=FLEET)
async def stop(node_id: UUID, write: AdminWrite, body: Nothing | None = None) -> Response:
    """Stop the open run: its deploy system is refused at once, the machine is switched off and the medium taken away."""
    return answer_response(await stop_run(write.context, write.operation(), write.actor, node_id))
