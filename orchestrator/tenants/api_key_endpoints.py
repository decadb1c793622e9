"""API keys of tenants and operators."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, identified_page, page_of
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite, unsealed_response
from orchestrator.tenants import queries as tenants
from orchestrator.tenants.commands.api_keys import create_api_key, revoke_api_key
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, NO_TENANT, OPERATOR_ADMINS, TenantRole
from orchestrator.tenants.schemas import ApiKey, ApiKeyQuery, CreateApiKey, NewApiKey
from orchestrator.tenants.store.api_keys import KeyWanted

router = APIRouter(prefix="/api-keys", tags=["admin: API keys"], responses=PROBLEM_RESPONSES)


@router.post("", status_code=201, response_model=NewApiKey)
@requires(tenant=NO_TENANT, operator=OPERATOR_ADMINS)
async def create(body: CreateApiKey, write: AdminWrite) -> Response:
    """Make a key; its secret is returned in this answer (and in its replays to the same caller) and nowhere else."""
    answer = await create_api_key(
        write.context,
        write.operation(body),
        write.actor,
        write.sealer(),
        KeyWanted(
            name=body.name,
            role=TenantRole.ADMIN if body.role == "tenant" else body.role,
            tenant_id=body.tenant_id,
            expires_at=body.expires_at,
            owner=body.owner,
        ),
        lifetime_seconds_max=write.parts.settings.api_key_lifetime_seconds_max,
    )
    write.parts.credentials.forget()
    return unsealed_response(write, answer, "key")


@router.get("", response_model=Page[ApiKey])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_all(query: Annotated[ApiKeyQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """Keys without their secrets, revoked ones too."""
    after, limit = identified_page(query, "api-keys")
    found = await tenants.list_api_keys(parts.context.database, tenant_id=query.tenant_id, after=after, limit=limit)
    return json_response(page_of(found, query.limit, "api-keys", lambda key: key.id))


@router.delete("/{key_id}", status_code=204)
@requires(tenant=NO_TENANT, operator=OPERATOR_ADMINS)
async def revoke(key_id: UUID, write: AdminWrite) -> Response:
    """Refuse a key from now on."""
    answer = await revoke_api_key(write.context, write.operation(), write.actor, key_id)
    write.parts.credentials.forget()
    return answer_response(answer)
