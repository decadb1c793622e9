"""HTTP routes of billing: usage and balance for tenants; balances, top-ups and withdrawals for operators."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.billing.commands import set_balance_policy, top_up_balance, withdraw_from_balance
from orchestrator.billing.queries import find_balance, find_usage
from orchestrator.billing.schemas import Balance, Payment, SetBalancePolicy, TopUp, UsageItem, UsageQuery, Withdraw
from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller, Caller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, bounded_text, page_of, place_after
from orchestrator.http.services import Parts
from orchestrator.http.tenant_scope import TenantQuery, scoped_tenant
from orchestrator.http.writes import AdminWrite
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, EVERY_TENANT_ROLE, FINANCE, NO_TENANT

router = APIRouter(tags=["usage"], responses=PROBLEM_RESPONSES)
admin_router = APIRouter(prefix="/tenants", tags=["admin: balances"], responses=PROBLEM_RESPONSES)


@router.get("/usage", response_model=Page[UsageItem], response_model_exclude_none=True)
@requires(tenant=EVERY_TENANT_ROLE, operator=EVERY_OPERATOR)
async def list_usage(query: Annotated[UsageQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """List usage and its cost by allocation, day (UTC) or tenant. Tenants see their own, operators any tenant's or all."""
    kind = f"usage by {query.by}"
    after = place_after(query.cursor, kind, bounded_text, "")
    all_tenants = caller.tenant_id is None and query.tenant_id is None
    tenant_id = None if all_tenants else scoped_tenant(caller, query.tenant_id)
    found = await find_usage(
        parts.context.database, query.by, tenant_id, query.from_, query.to, after=after, limit=query.limit + 1
    )
    page = page_of(found, query.limit, kind, lambda item: item.place)
    return json_response({**page, "items": [item.document for item in page["items"]]})


@router.get("/balance", response_model=Balance)
@requires(tenant=EVERY_TENANT_ROLE, operator=EVERY_OPERATOR)
async def get_balance(query: Annotated[TenantQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """Return what was paid in, used and is left, and when it runs out. Operators name the tenant."""
    tenant_id = scoped_tenant(caller, query.tenant_id)
    return json_response((await find_balance(parts.context.database, tenant_id)).document())


@admin_router.get("/{tenant_id}/balance", response_model=Balance)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def get_tenant_balance(tenant_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """Return a tenant's balance."""
    return json_response((await find_balance(parts.context.database, tenant_id)).document())


@admin_router.put("/{tenant_id}/balance", response_model=Balance)
@requires(tenant=NO_TENANT, operator=FINANCE)
async def put_balance_policy(tenant_id: UUID, body: SetBalancePolicy, write: AdminWrite) -> Response:
    """Set whether a tenant is prepaid, and the threshold below which its balance is low."""
    answer = await set_balance_policy(
        write.context,
        write.operation(body),
        write.actor,
        tenant_id,
        prepaid=body.prepaid,
        low_threshold=body.low_threshold_micro_units,
    )
    return answer_response(answer)


@admin_router.post("/{tenant_id}/top-ups", status_code=201, response_model=Payment)
@requires(tenant=NO_TENANT, operator=FINANCE)
async def top_up(tenant_id: UUID, body: TopUp, write: AdminWrite) -> Response:
    """Add an amount to a tenant's balance."""
    answer = await top_up_balance(
        write.context,
        write.operation(body),
        write.actor,
        tenant_id,
        amount=body.amount_micro_units,
        reference=body.reference,
    )
    return answer_response(answer)


@admin_router.post("/{tenant_id}/withdrawals", status_code=201, response_model=Payment)
@requires(tenant=NO_TENANT, operator=FINANCE)
async def withdraw(tenant_id: UUID, body: Withdraw, write: AdminWrite) -> Response:
    """Take an amount back from a tenant's balance."""
    answer = await withdraw_from_balance(
        write.context,
        write.operation(body),
        write.actor,
        tenant_id,
        amount=body.amount_micro_units,
        reference=body.reference,
    )
    return answer_response(answer)
