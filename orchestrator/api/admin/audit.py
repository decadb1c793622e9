"""The record of what operators did."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.api.answers import json_response
from orchestrator.api.authentication import AdminCaller
from orchestrator.api.documents import PROBLEM_RESPONSES
from orchestrator.api.paging import Page, numbered_page, page_of
from orchestrator.api.schemas.audit import AuditEntry, AuditQuery
from orchestrator.api.services import Parts
from orchestrator.queries.audit import list_audit

router = APIRouter(tags=["admin: audit"], responses=PROBLEM_RESPONSES)


@router.get("/audit", response_model=Page[AuditEntry])
async def list_entries(query: Annotated[AuditQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """Who did what, oldest first; about one object if `subject` names it, as in `nodes/<id>`."""
    after, limit = numbered_page(query, "audit")
    found = await list_audit(parts.context.database, subject=query.subject, after=after, limit=limit)
    return json_response(page_of(found, query.limit, "audit", lambda entry: entry.id))
