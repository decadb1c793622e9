"""The record of what operators did."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.audit.queries import list_audit
from orchestrator.audit.schemas import AuditEntry, AuditQuery
from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.paging import Page, numbered_page, page_of
from orchestrator.http.services import Parts
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, NO_TENANT

router = APIRouter(tags=["admin: audit"], responses=PROBLEM_RESPONSES)


@router.get("/audit", response_model=Page[AuditEntry])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_entries(query: Annotated[AuditQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """Audited actions with their actors, oldest first; about one object if `subject` names it, as in `nodes/<id>`."""
    after, limit = numbered_page(query, "audit")
    found = await list_audit(parts.context.database, subject=query.subject, after=after, limit=limit)
    return json_response(page_of(found, query.limit, "audit", lambda entry: entry.id))
