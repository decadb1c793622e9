"""Deploy systems of a node: permit one, read it, inspect the machine, list its tasks (admin zone)."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import ValidationError

from node_agent.wire.deploy_medium import MediumNetwork
from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, PageQuery, page_of, place_after
from orchestrator.http.services import Parts, Services
from orchestrator.http.writes import AdminWrite, unsealed_response
from orchestrator.nodes.commands.deploy_systems import (
    DeployOrder,
    permit_deploy_system,
    request_inspection,
    revoke_deploy_system,
)
from orchestrator.nodes.deploy_systems import queries
from orchestrator.nodes.deploy_systems.documents import task_document
from orchestrator.nodes.deploy_systems.refusals import DeployNotConfigured
from orchestrator.nodes.deploy_systems.rules import Addresses
from orchestrator.nodes.deploy_systems.schemas import (
    DeployNetwork,
    DeployTask,
    InspectMachine,
    NodeDeploySystem,
    PermitDeploySystem,
    PermittedDeploySystem,
)
from orchestrator.problems import Invalid
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, FLEET, NO_TENANT

router = APIRouter(prefix="/nodes/{node_id}", tags=["admin: nodes"], responses=PROBLEM_RESPONSES)


@router.post("/deploy-system", status_code=201, response_model=PermittedDeploySystem)
@requires(tenant=NO_TENANT, operator=FLEET)
async def permit(node_id: UUID, body: PermitDeploySystem, write: AdminWrite) -> Response:
    """Permit one start of a deploy system on the node's machine; the answer has the configuration of its medium.

    It ends the node's permission before it at once.
    """
    order = DeployOrder(
        network=network_of(body.network), smbios_uuid=None if body.smbios_uuid is None else UUID(body.smbios_uuid),
        macs=tuple(body.macs), require_tpm=body.require_tpm, valid_seconds=body.valid_seconds,
        certificate_seconds=body.certificate_seconds,
    )  # fmt: skip
    answer = await permit_deploy_system(
        write.context, write.operation(body), write.actor, write.sealer(), node_id, order, addresses_of(write.parts)
    )
    return unsealed_response(write, answer, "medium")


@router.delete("/deploy-system", status_code=204)
@requires(tenant=NO_TENANT, operator=FLEET)
async def revoke(node_id: UUID, write: AdminWrite) -> Response:
    """End the node's permission at once: its token and its certificate are refused, and its tasks are superseded."""
    return answer_response(await revoke_deploy_system(write.context, write.operation(), write.actor, node_id))


@router.get("/deploy-system", response_model=NodeDeploySystem)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find(node_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """The newest permission of the node, and what the last inspection found of its machine."""
    return json_response(await queries.find_deploy_system(parts.context.database, node_id))


@router.post("/deploy-system/inspect", response_model=DeployTask)
@requires(tenant=NO_TENANT, operator=FLEET)
async def inspect(node_id: UUID, write: AdminWrite, body: InspectMachine | None = None) -> Response:
    """Have the deploy system inspect the machine; it writes nothing on it."""
    wanted = body or InspectMachine()
    answer = await request_inspection(
        write.context, write.operation(wanted), write.actor, node_id, power_off=wanted.power_off
    )
    return answer_response(answer)


@router.get("/deploy-system/tasks", response_model=Page[DeployTask])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_all(node_id: UUID, query: Annotated[PageQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """The tasks of the node's deploy systems that are kept, newest first."""
    kind = f"deploy tasks of {node_id}"
    before = place_after(query.cursor, kind, UUID, None)
    found = await queries.list_deploy_tasks(parts.context.database, node_id, before=before, limit=query.limit + 1)
    page = page_of(found, query.limit, kind, lambda one: one.id)
    return json_response({**page, "items": [task_document(one) for one in page["items"]]})


def network_of(given: DeployNetwork) -> MediumNetwork:
    """The network as the medium has it. Raises `Invalid`."""
    try:
        return MediumNetwork.model_validate(given.model_dump())
    except ValidationError as error:
        message = "address must be an IPv4 or IPv6 address with its prefix length, and gateway a neighbour within it"
        raise Invalid(f"network: {message}", errors=[{"field": "network", "message": message}]) from error


def addresses_of(parts: Services) -> Addresses:
    """Where deploy systems of this installation enrol. Raises `DeployNotConfigured`."""
    settings = parts.settings
    missing = [
        name
        for name, value in (
            ("BERTH_PUBLIC_API_URL", settings.public_api_url or None),
            ("BERTH_PUBLIC_CA_FILE with a certificate", parts.enrolment_ca),
            ("BERTH_KEY_SET_FILE", parts.key_set),
        )
        if value is None
    ]
    if missing or not settings.public_api_url or parts.enrolment_ca is None or parts.key_set is None:
        raise DeployNotConfigured(f"deploy systems cannot enrol here: set {', '.join(missing)}")
    return Addresses(
        settings.public_api_url.rstrip("/"),
        parts.enrolment_ca,
        settings.node_api_url.rstrip("/"),
        parts.key_set.current().serial,
    )
