"""What a tenant used and what it costs. Operators see any tenant's, or all."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.billing.queries import find_usage
from orchestrator.billing.usage_schemas import UsageItem, UsageQuery
from orchestrator.http.answers import json_response
from orchestrator.http.authentication import Caller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.paging import Page, bounded_text, page_of, place_after
from orchestrator.http.services import Parts
from orchestrator.http.tenant_scope import scoped_tenant

router = APIRouter(tags=["usage"], responses=PROBLEM_RESPONSES)


@router.get("/usage", response_model=Page[UsageItem], response_model_exclude_none=True)
async def list_usage(query: Annotated[UsageQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """What was active, and what that costs, by allocation, day (UTC) or tenant."""
    kind = f"usage by {query.by}"
    after = place_after(query.cursor, kind, bounded_text, "")
    all_tenants = caller.tenant_id is None and query.tenant_id is None
    tenant_id = None if all_tenants else scoped_tenant(caller, query.tenant_id)
    found = await find_usage(
        parts.context.database, query.by, tenant_id, query.from_, query.to, after=after, limit=query.limit + 1
    )
    page = page_of(found, query.limit, kind, lambda item: item.place)
    return json_response({**page, "items": [item.document for item in page["items"]]})
