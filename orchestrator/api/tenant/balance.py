"""What is left to a tenant. Operators name the tenant that they mean."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.api.answers import json_response
from orchestrator.api.authentication import Caller
from orchestrator.api.documents import PROBLEM_RESPONSES
from orchestrator.api.schemas.allocations import TenantQuery
from orchestrator.api.schemas.balances import Balance
from orchestrator.api.services import Parts
from orchestrator.api.tenant.allocation_reads import tenant_meant
from orchestrator.queries.find_balance import find_balance

router = APIRouter(tags=["usage"], responses=PROBLEM_RESPONSES)


@router.get("/balance", response_model=Balance)
async def find(query: Annotated[TenantQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """What was given, what is used, what is left, and until when that lasts."""
    tenant_id = tenant_meant(caller, query.tenant_id)
    return json_response((await find_balance(parts.context.database, tenant_id)).document())
