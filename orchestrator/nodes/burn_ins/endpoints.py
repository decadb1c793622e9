"""Burn-ins of a node: request one, and the history."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, PageQuery, page_of, place_after
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite
from orchestrator.nodes.burn_ins import queries
from orchestrator.nodes.burn_ins.documents import burn_in_document
from orchestrator.nodes.burn_ins.schemas import BurnIn, RequestBurnIn
from orchestrator.nodes.commands.burn_ins import request_burn_in
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, FLEET, NO_TENANT

router = APIRouter(prefix="/nodes/{node_id}", tags=["admin: nodes"], responses=PROBLEM_RESPONSES)


@router.post("/burn-in", response_model=BurnIn)
@requires(tenant=NO_TENANT, operator=FLEET)
async def request(node_id: UUID, body: RequestBurnIn, write: AdminWrite) -> Response:
    """Test slots in quarantine before they return: memory, disk and processors of the node, DCGM and plugins."""
    answer = await request_burn_in(write.context, write.operation(body), write.actor, node_id, body.slot)
    return answer_response(answer)


@router.get("/burn-ins", response_model=Page[BurnIn])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_all(node_id: UUID, query: Annotated[PageQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """The burn-ins of a node that are kept, newest first."""
    kind = f"burn-ins of {node_id}"
    before = place_after(query.cursor, kind, UUID, None)
    found = await queries.list_burn_ins(parts.context.database, node_id, before=before, limit=query.limit + 1)
    page = page_of(found, query.limit, kind, lambda one: one.id)
    return json_response({**page, "items": [burn_in_document(one) for one in page["items"]]})
