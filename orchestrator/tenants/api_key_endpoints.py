"""API keys: operators manage every key, a tenant's admins those of their tenant."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.approvals.endpoints import (
    REQUESTED,
    REQUESTED_WITH_KEY,
    key_bounds_of,
    request_second,
    request_second_with_key,
)
from orchestrator.approvals.states import ApprovalAction
from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller, TenantCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, PageQuery, identified_page, page_of
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite, TenantWrite, Write, unsealed_response
from orchestrator.tenants import queries as tenants
from orchestrator.tenants.commands.api_keys import create_api_key, revoke_api_key, rotate_api_key
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import (
    EVERY_OPERATOR,
    NO_OPERATOR,
    NO_TENANT,
    OPERATOR_ADMINS,
    TENANT_ADMINS,
    TenantRole,
)
from orchestrator.tenants.schemas import (
    ApiKey,
    ApiKeyQuery,
    CreateApiKey,
    CreateOwnApiKey,
    NewApiKey,
    RotateApiKey,
    RotatedApiKey,
)
from orchestrator.tenants.store.api_keys import KeyWanted

router = APIRouter(prefix="/api-keys", tags=["admin: API keys"], responses=PROBLEM_RESPONSES)
own_router = APIRouter(prefix="/api-keys", tags=["api keys"], responses=PROBLEM_RESPONSES)


@router.post("", status_code=201, response_model=NewApiKey, responses=REQUESTED_WITH_KEY)
@requires(tenant=NO_TENANT, operator=OPERATOR_ADMINS)
async def create(body: CreateApiKey, write: AdminWrite) -> Response:
    """Make a key; its secret is returned in this answer (and in its replays to the same caller) and nowhere else."""
    role = TenantRole.ADMIN if body.role == "tenant" else body.role
    if write.parts.settings.four_eyes and body.tenant_id is None:
        shown = body.model_dump(mode="json", include={"name", "expires_at", "owner", "break_glass", "scopes"})
        return await request_second_with_key(write, body, ApprovalAction.CREATE_KEY, None, {**shown, "role": str(role)})
    wanted = KeyWanted(body.name, role, body.tenant_id, body.expires_at, body.owner, body.break_glass, body.scopes)
    return await _create(write, body, wanted)


@router.get("", response_model=Page[ApiKey])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_all(query: Annotated[ApiKeyQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """Keys without their secrets, revoked ones too."""
    after, limit = identified_page(query, "api-keys")
    found = await tenants.list_api_keys(parts.context.database, tenant_id=query.tenant_id, after=after, limit=limit)
    return json_response(page_of(found, query.limit, "api-keys", lambda key: key.id))


@router.post("/{key_id}/rotate", status_code=201, response_model=RotatedApiKey, responses=REQUESTED_WITH_KEY)
@requires(tenant=NO_TENANT, operator=OPERATOR_ADMINS)
async def rotate(key_id: UUID, write: AdminWrite, body: RotateApiKey | None = None) -> Response:
    """Make a key of the same name, role, owner and scopes in place of this one, which stays valid during the overlap."""
    asked = body or RotateApiKey()
    if await _needs_second(write, key_id):
        return await request_second_with_key(
            write, asked, ApprovalAction.ROTATE_KEY, key_id, asked.model_dump(mode="json")
        )
    return await _rotate(write, key_id, asked)


@router.delete("/{key_id}", status_code=204, responses=REQUESTED)
@requires(tenant=NO_TENANT, operator=OPERATOR_ADMINS)
async def revoke(key_id: UUID, write: AdminWrite) -> Response:
    """Refuse a key from now on."""
    if await _needs_second(write, key_id):
        return await request_second(write, None, ApprovalAction.REVOKE_KEY, key_id, {})
    return await _revoke(write, key_id)


@own_router.post("", status_code=201, response_model=NewApiKey)
@requires(tenant=TENANT_ADMINS, operator=NO_OPERATOR)
async def create_own(body: CreateOwnApiKey, write: TenantWrite) -> Response:
    """Make a key of the tenant; its secret is in this answer (and in its replays to the same caller) and nowhere else."""
    wanted = KeyWanted(body.name, body.role, write.caller.tenant_id, body.expires_at, body.owner, scopes=body.scopes)
    return await _create(write, body, wanted)


@own_router.get("", response_model=Page[ApiKey])
@requires(tenant=TENANT_ADMINS, operator=NO_OPERATOR)
async def list_own(query: Annotated[PageQuery, Query()], caller: TenantCaller, parts: Parts) -> Response:
    """The tenant's keys without their secrets, revoked ones too."""
    assert caller.tenant_id is not None, "the dependency lets only tenants' principals through"
    after, limit = identified_page(query, "api-keys")
    found = await tenants.list_api_keys(parts.context.database, tenant_id=caller.tenant_id, after=after, limit=limit)
    return json_response(page_of(found, query.limit, "api-keys", lambda key: key.id))


@own_router.post("/{key_id}/rotate", status_code=201, response_model=RotatedApiKey)
@requires(tenant=TENANT_ADMINS, operator=NO_OPERATOR)
async def rotate_own(key_id: UUID, write: TenantWrite, body: RotateApiKey | None = None) -> Response:
    """Make a key of the same name, role, owner and scopes in place of this one, which stays valid during the overlap."""
    return await _rotate(write, key_id, body or RotateApiKey())


@own_router.delete("/{key_id}", status_code=204)
@requires(tenant=TENANT_ADMINS, operator=NO_OPERATOR)
async def revoke_own(key_id: UUID, write: TenantWrite) -> Response:
    """Refuse a key from now on; not the tenant's last live `admin` key."""
    return await _revoke(write, key_id)


async def _needs_second(write: Write, key_id: UUID) -> bool:
    """Whether a second operator must approve changes of this key: with four eyes, of an operator's."""
    return write.parts.settings.four_eyes and await tenants.is_operators_key(write.context.database, key_id)


async def _create(write: Write, body: CreateApiKey | CreateOwnApiKey, wanted: KeyWanted) -> Response:
    answer = await create_api_key(
        write.context, write.operation(body), write.caller, write.sealer(), wanted, key_bounds_of(write.parts)
    )
    return unsealed_response(write, answer, "key")


async def _rotate(write: Write, key_id: UUID, body: RotateApiKey) -> Response:
    answer = await rotate_api_key(
        write.context,
        write.operation(body),
        write.caller,
        write.sealer(),
        key_id,
        key_bounds_of(write.parts),
        overlap_seconds=body.overlap_seconds,
        expires_at=body.expires_at,
    )
    write.parts.credentials.forget_key(key_id)
    return unsealed_response(write, answer, "key")


async def _revoke(write: Write, key_id: UUID) -> Response:
    answer = await revoke_api_key(write.context, write.operation(), write.caller, key_id)
    write.parts.credentials.forget_key(key_id)
    return answer_response(answer)
