"""`GET /api/v1/me`: the caller, as the API authenticated it."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import Caller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.services import Parts
from orchestrator.problems import Quota
from orchestrator.tenants.queries import find_quotas_used, find_tenant, note_head, quotas_of
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, EVERY_TENANT_ROLE
from orchestrator.tenants.schemas import Account

router = APIRouter(tags=["account"], responses=PROBLEM_RESPONSES)


@router.get("/me", response_model=Account)
@requires(tenant=EVERY_TENANT_ROLE, operator=EVERY_OPERATOR)
async def me(caller: Caller, parts: Parts) -> Response:
    """Principal, role, scopes, tenant and limits of the caller; an operator has no tenant and no limits."""
    database = parts.context.database
    if caller.tenant_id is None:
        await note_head(database)
    tenant = None if caller.tenant_id is None else await find_tenant(database, caller.tenant_id)
    used = {} if tenant is None else await find_quotas_used(database, tenant.id)
    used[Quota.STREAMS] = parts.feed.open_streams(caller.tenant_id)
    return json_response(
        {
            "principal_id": caller.id,
            "role": caller.role,
            "scopes": None if caller.scopes is None else sorted(caller.scopes),
            "tenant": None if tenant is None else {"id": tenant.id, "name": tenant.name, "state": tenant.state},
            "limits": None
            if tenant is None
            else {
                "gpus_limit": tenant.gpus_limit,
                "gpus_used": tenant.gpus_used,
                "subscribers_max": tenant.limits.get(Quota.STREAMS, parts.settings.feed_tenant_subscribers_max),
                "webhooks_max": tenant.limits.get(Quota.WEBHOOKS, parts.settings.webhooks_max),
                "hold_seconds_max": parts.context.limits.hold_seconds_max,
                "window_seconds_max": parts.context.limits.window_seconds_max,
                "quotas": quotas_of(tenant, used, parts.settings.quota_defaults()),
            },
        }
    )
