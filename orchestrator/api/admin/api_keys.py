"""API keys of tenants and operators."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.api.answers import json_response
from orchestrator.api.authentication import AdminCaller
from orchestrator.api.documents import PROBLEM_RESPONSES
from orchestrator.api.operation_keys import answer_response
from orchestrator.api.paging import Page, identified_page, page_of
from orchestrator.api.schemas.tenants import ApiKey, ApiKeyQuery, CreateApiKey, NewApiKey
from orchestrator.api.services import Parts
from orchestrator.api.writes import AdminWrite, unsealed_response
from orchestrator.commands.create_api_key import create_api_key
from orchestrator.commands.revoke_api_key import revoke_api_key
from orchestrator.queries import tenants

router = APIRouter(prefix="/api-keys", tags=["admin: API keys"], responses=PROBLEM_RESPONSES)


@router.post("", status_code=201, response_model=NewApiKey)
async def create(body: CreateApiKey, write: AdminWrite) -> Response:
    """Make a key; its secret is told in this answer (and in its replays to the same caller) and nowhere else."""
    answer = await create_api_key(
        write.context,
        write.operation(body),
        write.actor,
        write.sealer(),
        name=body.name,
        role=body.role,
        tenant_id=body.tenant_id,
    )
    write.parts.credentials.forget()
    return unsealed_response(write, answer, "key")


@router.get("", response_model=Page[ApiKey])
async def list_all(query: Annotated[ApiKeyQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """Keys without their secrets, revoked ones too."""
    after, limit = identified_page(query, "api-keys")
    found = await tenants.list_api_keys(parts.context.database, tenant_id=query.tenant_id, after=after, limit=limit)
    return json_response(page_of(found, query.limit, "api-keys", lambda key: key.id))


@router.delete("/{key_id}", status_code=204)
async def revoke(key_id: UUID, write: AdminWrite) -> Response:
    """Refuse a key from now on."""
    answer = await revoke_api_key(write.context, write.operation(), write.actor, key_id)
    write.parts.credentials.forget()
    return answer_response(answer)
