"""Tenants and their quotas."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, PageQuery, identified_page, page_of
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite
from orchestrator.problems import Quota
from orchestrator.tenants import queries as tenants
from orchestrator.tenants.commands.tenants import change_tenant_state, create_tenant, delete_tenant, set_quota
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, NO_TENANT, OPERATOR_ADMINS
from orchestrator.tenants.schemas import ChangeTenant, CreateTenant, SetQuota, Tenant, TenantQuotas
from orchestrator.tenants.store.tenants import NewGpusLimit

router = APIRouter(prefix="/tenants", tags=["admin: tenants"], responses=PROBLEM_RESPONSES)


@router.post("", status_code=201, response_model=Tenant)
@requires(tenant=NO_TENANT, operator=OPERATOR_ADMINS)
async def create(body: CreateTenant, write: AdminWrite) -> Response:
    """Make a tenant. Without `gpus_limit` it may hold `BERTH_TENANT_GPUS_DEFAULT` GPUs."""
    named = "gpus_limit" in body.model_fields_set
    gpus_limit = body.gpus_limit if named else write.parts.settings.tenant_gpus_default
    answer = await create_tenant(
        write.context, write.operation(body), write.actor, name=body.name, gpus_limit=gpus_limit
    )
    return answer_response(answer)


@router.get("", response_model=Page[Tenant])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_all(query: Annotated[PageQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """All tenants, deleted ones too."""
    after, limit = identified_page(query, "tenants")
    found = await tenants.list_tenants(parts.context.database, after=after, limit=limit)
    return json_response(page_of(found, query.limit, "tenants", lambda tenant: tenant.id))


@router.get("/{tenant_id}", response_model=Tenant)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find(tenant_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """One tenant, also a deleted one."""
    return json_response(await tenants.find_tenant(parts.context.database, tenant_id))


@router.patch("/{tenant_id}", response_model=Tenant)
@requires(tenant=NO_TENANT, operator=OPERATOR_ADMINS)
async def change(tenant_id: UUID, body: ChangeTenant, write: AdminWrite) -> Response:
    """Suspend a tenant, or let it go on."""
    answer = await change_tenant_state(write.context, write.operation(body), write.actor, tenant_id, state=body.state)
    write.parts.credentials.forget()
    return answer_response(answer)


@router.delete("/{tenant_id}", status_code=204)
@requires(tenant=NO_TENANT, operator=OPERATOR_ADMINS)
async def delete(tenant_id: UUID, write: AdminWrite) -> Response:
    """Delete a tenant that holds nothing; otherwise 409 `tenant_in_use` with the counts. Its id and name are never reused."""
    answer = await delete_tenant(write.context, write.operation(), write.actor, tenant_id)
    write.parts.credentials.forget()
    return answer_response(answer)


@router.get("/{tenant_id}/quota", response_model=TenantQuotas)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find_quotas(tenant_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """The quotas of a tenant, and what it uses of each."""
    tenant = await tenants.find_tenant(parts.context.database, tenant_id)
    used = await tenants.find_quotas_used(parts.context.database, tenant_id)
    used[Quota.STREAMS] = parts.feed.open_streams(tenant_id)
    return json_response(
        {
            "tenant_id": tenant.id,
            "gpus_limit": tenant.gpus_limit,
            "gpus_used": tenant.gpus_used,
            "quotas": tenants.quotas_of(tenant, used, parts.settings.quota_defaults()),
        }
    )


@router.put("/{tenant_id}/quota", response_model=Tenant)
@requires(tenant=NO_TENANT, operator=OPERATOR_ADMINS)
async def limit_tenant(tenant_id: UUID, body: SetQuota, write: AdminWrite) -> Response:
    """Set limits of a tenant: GPUs that it may hold, and its other quotas."""
    limits = {quota.value: limit for quota, limit in (body.limits or {}).items()}
    gpus = NewGpusLimit(body.gpus_limit) if "gpus_limit" in body.model_fields_set else None
    answer = await set_quota(write.context, write.operation(body), write.actor, tenant_id, gpus=gpus, limits=limits)
    return answer_response(answer)
