"""HTTP of resources: read them (tenant zone), and register them and change their service (admin zone)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import Caller
from orchestrator.http.fields import Nothing
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, numbered_page, page_of
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite
from orchestrator.reservations import queries as reservations
from orchestrator.reservations.commands.resources import create_resource, put_back_resource, take_out_resource
from orchestrator.reservations.resource_names import RESOURCE_ID_PATTERN
from orchestrator.reservations.schemas import CreateResource, Resource, ResourceQuery, TakeOutOfService
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, FLEET, NO_TENANT, TENANT_READERS

router = APIRouter(prefix="/resources", tags=["resources"], responses=PROBLEM_RESPONSES)
admin_router = APIRouter(prefix="/resources", tags=["admin: resources"], responses=PROBLEM_RESPONSES)

ResourcePath = Annotated[str, Path(max_length=200, pattern=r"^[A-Za-z0-9._:-]+$")]
RegisteredPath = Annotated[
    str, Path(pattern=RESOURCE_ID_PATTERN, description="a registered resource; nodes are cordoned instead")
]


@router.get("", response_model=Page[Resource])
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def list_all(query: Annotated[ResourceQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """Nodes, slots and registered resources, by unit number."""
    after, limit = numbered_page(query, "resources")
    found = await reservations.list_resources(
        parts.context.database, caller.tenant_id, kind=query.kind, after=after, limit=limit
    )
    page = page_of(found, query.limit, "resources", lambda item: item.place)
    return json_response({**page, "items": [item.document for item in page["items"]]})


@router.get("/{resource_id}", response_model=Resource)
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def find(resource_id: ResourcePath, caller: Caller, parts: Parts) -> Response:
    """One resource."""
    found = await reservations.find_resource(parts.context.database, resource_id, caller.tenant_id)
    return json_response(found.document)


@admin_router.post("", status_code=201, response_model=Resource)
@requires(tenant=NO_TENANT, operator=FLEET)
async def create(body: CreateResource, write: AdminWrite) -> Response:
    """Register a resource under an id that the operator chooses."""
    return answer_response(await create_resource(write.context, write.operation(body), write.actor, body.id))


@admin_router.post("/{resource_id}/out-of-service", response_model=Resource)
@requires(tenant=NO_TENANT, operator=FLEET)
async def take_out(resource_id: RegisteredPath, body: TakeOutOfService, write: AdminWrite) -> Response:
    """Take a resource out of service: new holds are refused, its holder keeps it."""
    taken = take_out_resource(write.context, write.operation(body), write.actor, resource_id, reason=body.reason)
    return answer_response(await taken)


@admin_router.post("/{resource_id}/in-service", response_model=Resource)
@requires(tenant=NO_TENANT, operator=FLEET)
async def put_back(resource_id: RegisteredPath, write: AdminWrite, body: Nothing | None = None) -> Response:
    """Put a resource back into service."""
    return answer_response(await put_back_resource(write.context, write.operation(), write.actor, resource_id))
