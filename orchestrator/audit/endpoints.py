"""The audit: operators read all of it, tenants the rows of their principals."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.audit.commands import chain_audit
from orchestrator.audit.list_store import Filter
from orchestrator.audit.queries import list_audit
from orchestrator.audit.schemas import AuditEntry, AuditQuery, OwnAuditQuery
from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller, TenantCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.paging import Page, cursor_after, numbered_page, page_of
from orchestrator.http.services import Parts, Services
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, NO_OPERATOR, NO_TENANT, TENANT_ADMINS

router = APIRouter(tags=["admin: audit"], responses=PROBLEM_RESPONSES)
own_router = APIRouter(tags=["audit"], responses=PROBLEM_RESPONSES)


@router.get("/audit", response_model=Page[AuditEntry])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_entries(query: Annotated[AuditQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """Audited actions with caller, object and outcome, oldest first; about one object if `subject` names it (`nodes/<id>`).

    A list begins with the oldest row that is not in the archive alone; `after` or a cursor before it is 410 `audit_truncated`.
    With two or more filters a page may have fewer items than `limit`, or none, before the last one.
    """
    return await _page(parts, query, query.filter(query.tenant_id))


@own_router.get("/audit", response_model=Page[AuditEntry])
@requires(tenant=TENANT_ADMINS, operator=NO_OPERATOR)
async def list_own(query: Annotated[OwnAuditQuery, Query()], caller: TenantCaller, parts: Parts) -> Response:
    """Audited actions of the tenant's principals, oldest first.

    A list begins with the oldest row that is not in the archive alone; `after` or a cursor before it is 410 `audit_truncated`.
    With two or more filters a page may have fewer items than `limit`, or none, before the last one.
    """
    return await _page(parts, query, query.filter(caller.tenant_id))


async def _page(parts: Services, query: OwnAuditQuery, matching: Filter) -> Response:
    # The page contains what this process has done before the request, whether or not a worker runs.
    await parts.recorder.flush()
    await chain_audit(parts.context)
    place, limit = numbered_page(query, "audit")
    after = None if query.cursor is None and query.after is None else max(place, query.after or 0)
    found = await list_audit(parts.context.database, matching, after=after, limit=limit)
    page = page_of(found.entries, query.limit, "audit", lambda entry: entry.sequence)
    if found.examined_to is not None:
        page["next_cursor"] = cursor_after("audit", found.examined_to)
    return json_response(page)
