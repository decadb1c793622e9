"""Every tenant's allocations, and the last word on one."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.allocations import queries as allocations
from orchestrator.allocations.commands.force import force_cleanup, force_release
from orchestrator.allocations.schemas import Allocation, AllocationQuery, ForceCleanup, ForceRelease, label_of
from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, identified_page, page_of
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite

router = APIRouter(prefix="/allocations", tags=["admin: allocations"], responses=PROBLEM_RESPONSES)


@router.get("", response_model=Page[Allocation])
async def list_all(query: Annotated[AllocationQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """Allocations across tenants, newest last."""
    after, limit = identified_page(query, "all allocations")
    found = await allocations.list_allocations(
        parts.context.database, query.tenant_id, state=query.state, label=label_of(query), after=after, limit=limit
    )
    page = page_of(found, query.limit, "all allocations", lambda item: item.place)
    return json_response({**page, "items": [item.document for item in page["items"]]})


@router.post("/{allocation_id}/force-release", status_code=202, response_model=Allocation)
async def release_by_force(allocation_id: UUID, body: ForceRelease, write: AdminWrite) -> Response:
    """Release from any state that is not over, also one that is stuck; on the record."""
    releasing = force_release(write.context, write.operation(body), write.actor, allocation_id, body.reason)
    return answer_response(await write.in_story("POST /api/v1/admin/allocations/{id}/force-release", releasing))


@router.post("/{allocation_id}/force-cleanup", response_model=Allocation)
async def clean_up_by_force(allocation_id: UUID, body: ForceCleanup, write: AdminWrite) -> Response:
    """Free the units on an operator's word that nothing is left on them; on the record."""
    return answer_response(
        await force_cleanup(write.context, write.operation(body), write.actor, allocation_id, body.reason)
    )
