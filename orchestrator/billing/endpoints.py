"""What is left to a tenant. Operators name the tenant that they mean."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.billing.queries import find_balance
from orchestrator.billing.schemas import Balance
from orchestrator.http.answers import json_response
from orchestrator.http.authentication import Caller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.services import Parts
from orchestrator.http.tenant_scope import TenantQuery, scoped_tenant

router = APIRouter(tags=["usage"], responses=PROBLEM_RESPONSES)


@router.get("/balance", response_model=Balance)
async def find(query: Annotated[TenantQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """What was given, what is used, what is left, and until when that lasts."""
    tenant_id = scoped_tenant(caller, query.tenant_id)
    return json_response((await find_balance(parts.context.database, tenant_id)).document())
