"""The health of a node's hardware: the last report, and the history."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.paging import Page, PageQuery, page_of, place_after
from orchestrator.http.services import Parts
from orchestrator.nodes.probes import queries
from orchestrator.nodes.probes.documents import health_document, report_document
from orchestrator.nodes.probes.schemas import NodeHealth, StoredHealthReport
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, NO_TENANT

router = APIRouter(prefix="/nodes/{node_id}", tags=["admin: nodes"], responses=PROBLEM_RESPONSES)


@router.get("/health", response_model=NodeHealth)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find(node_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """How the hardware of the node is by its last health probe, and what of it is a fault."""
    return json_response(health_document(*await queries.find_health(parts.context.database, node_id)))


@router.get("/health/reports", response_model=Page[StoredHealthReport])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_reports(
    node_id: UUID, query: Annotated[PageQuery, Query()], caller: AdminCaller, parts: Parts
) -> Response:
    """The reports of a node's health probes that are kept, newest first."""
    kind = f"health reports of {node_id}"
    before = place_after(query.cursor, kind, UUID, None)
    found = await queries.list_health_reports(parts.context.database, node_id, before=before, limit=query.limit + 1)
    page = page_of(found, query.limit, kind, lambda report: report.id)
    return json_response({**page, "items": [report_document(one) for one in page["items"]]})
