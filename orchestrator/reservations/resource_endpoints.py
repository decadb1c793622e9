"""What can be reserved, and what each of it is now. Of reservations a tenant sees its own only."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import Caller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.paging import Page, numbered_page, page_of
from orchestrator.http.services import Parts
from orchestrator.reservations import queries as reservations
from orchestrator.reservations.schemas import Resource, ResourceQuery

router = APIRouter(prefix="/resources", tags=["resources"], responses=PROBLEM_RESPONSES)

ResourcePath = Annotated[str, Path(max_length=200, pattern=r"^[A-Za-z0-9._:-]+$")]


@router.get("", response_model=Page[Resource])
async def list_all(query: Annotated[ResourceQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """Nodes, slots and what operators registered, in the order in which they came."""
    after, limit = numbered_page(query, "resources")
    found = await reservations.list_resources(
        parts.context.database, caller.tenant_id, kind=query.kind, after=after, limit=limit
    )
    page = page_of(found, query.limit, "resources", lambda item: item.place)
    return json_response({**page, "items": [item.document for item in page["items"]]})


@router.get("/{resource_id}", response_model=Resource)
async def find(resource_id: ResourcePath, caller: Caller, parts: Parts) -> Response:
    """One resource."""
    found = await reservations.find_resource(parts.context.database, resource_id, caller.tenant_id)
    return json_response(found.document)
