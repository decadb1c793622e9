"""Tenants and their quotas."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.api.answers import json_response
from orchestrator.api.authentication import AdminCaller
from orchestrator.api.documents import PROBLEM_RESPONSES
from orchestrator.api.operation_keys import answer_response
from orchestrator.api.paging import Page, PageQuery, identified_page, page_of
from orchestrator.api.schemas.tenants import ChangeTenant, CreateTenant, SetQuota, Tenant
from orchestrator.api.services import Parts
from orchestrator.api.writes import AdminWrite
from orchestrator.commands.change_tenant_state import change_tenant_state
from orchestrator.commands.create_tenant import create_tenant
from orchestrator.commands.set_quota import set_quota
from orchestrator.queries import tenants

router = APIRouter(prefix="/tenants", tags=["admin: tenants"], responses=PROBLEM_RESPONSES)


@router.post("", status_code=201, response_model=Tenant)
async def create(body: CreateTenant, write: AdminWrite) -> Response:
    """Make a tenant."""
    answer = await create_tenant(
        write.context, write.operation(body), write.actor, name=body.name, gpus_limit=body.gpus_limit
    )
    return answer_response(answer)


@router.get("", response_model=Page[Tenant])
async def list_all(query: Annotated[PageQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """All tenants."""
    after, limit = identified_page(query, "tenants")
    found = await tenants.list_tenants(parts.context.database, after=after, limit=limit)
    return json_response(page_of(found, query.limit, "tenants", lambda tenant: tenant.id))


@router.get("/{tenant_id}", response_model=Tenant)
async def find(tenant_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """One tenant."""
    return json_response(await tenants.find_tenant(parts.context.database, tenant_id))


@router.patch("/{tenant_id}", response_model=Tenant)
async def change(tenant_id: UUID, body: ChangeTenant, write: AdminWrite) -> Response:
    """Suspend a tenant, or let it go on."""
    answer = await change_tenant_state(write.context, write.operation(body), write.actor, tenant_id, state=body.state)
    write.parts.credentials.forget()
    return answer_response(answer)


@router.put("/{tenant_id}/quota", response_model=Tenant)
async def limit_gpus(tenant_id: UUID, body: SetQuota, write: AdminWrite) -> Response:
    """Limit the GPUs that a tenant may hold."""
    answer = await set_quota(write.context, write.operation(body), write.actor, tenant_id, gpus_limit=body.gpus_limit)
    return answer_response(answer)
