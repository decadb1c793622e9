"""Seeing allocations, and ending them. Operators name the tenant whose allocations they mean."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.allocations import queries as allocations
from orchestrator.allocations.commands.release import release_allocation
from orchestrator.allocations.schemas import (
    Allocation,
    AllocationQuery,
    TenantQuery,
    TimelineEntry,
    TimelineQuery,
    label_of,
)
from orchestrator.allocations.states import Principal
from orchestrator.http.answers import json_response
from orchestrator.http.authentication import Caller
from orchestrator.http.fields import Nothing
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, identified_page, numbered_page, page_of
from orchestrator.http.services import Parts
from orchestrator.http.writes import AnyWrite
from orchestrator.problems import Forbidden, NotFound

router = APIRouter(prefix="/allocations", tags=["allocations"], responses=PROBLEM_RESPONSES)


def tenant_meant(caller: Principal, named: UUID | None) -> UUID:
    """Whose allocations are meant: the caller's own, or for an operator the named tenant's.

    Raises `Forbidden` if an operator names none, `NotFound` if a tenant names another.
    """
    if caller.tenant_id is None:
        if named is None:
            raise Forbidden("an operator's key names the tenant here: ?tenant_id=")
        return named
    if named not in (None, caller.tenant_id):
        raise NotFound(f"there is no tenant {named}")
    return caller.tenant_id


@router.get("", response_model=Page[Allocation])
async def list_own(query: Annotated[AllocationQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """The tenant's allocations, newest last."""
    after, limit = identified_page(query, "allocations")
    tenant_id = tenant_meant(caller, query.tenant_id)
    found = await allocations.list_allocations(
        parts.context.database, tenant_id, state=query.state, label=label_of(query), after=after, limit=limit
    )
    page = page_of(found, query.limit, "allocations", lambda item: item.place)
    return json_response({**page, "items": [item.document for item in page["items"]]})


@router.get("/{allocation_id}", response_model=Allocation)
async def find(allocation_id: UUID, query: Annotated[TenantQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """One allocation."""
    tenant_id = tenant_meant(caller, query.tenant_id)
    return json_response(await allocations.find_allocation(parts.context.database, allocation_id, tenant_id))


@router.get("/{allocation_id}/timeline", response_model=Page[TimelineEntry])
async def list_timeline(
    allocation_id: UUID, query: Annotated[TimelineQuery, Query()], caller: Caller, parts: Parts
) -> Response:
    """What happened to it, oldest first."""
    kind = f"timeline of {allocation_id}"
    after, limit = numbered_page(query, kind)
    tenant_id = tenant_meant(caller, query.tenant_id)
    found = await allocations.list_timeline(parts.context.database, allocation_id, tenant_id, after=after, limit=limit)
    page = page_of(found, query.limit, kind, lambda item: item.place)
    return json_response({**page, "items": [item.document for item in page["items"]]})


@router.post("/{allocation_id}/release", status_code=202, response_model=Allocation)
async def release(
    allocation_id: UUID, query: Annotated[TenantQuery, Query()], write: AnyWrite, body: Nothing | None = None
) -> Response:
    """End an allocation, or cancel it before it has begun; repeating it is harmless."""
    tenant_id = tenant_meant(write.caller, query.tenant_id)
    releasing = release_allocation(write.context, write.operation(), write.actor, tenant_id, allocation_id)
    return answer_response(await write.in_story("POST /api/v1/allocations/{id}/release", releasing))
