"""A tenant's SSH keys: with them it logs in to what it rents."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import TenantCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, PageQuery, identified_page, page_of
from orchestrator.http.services import Parts
from orchestrator.http.writes import TenantWrite
from orchestrator.tenants import queries as ssh_keys
from orchestrator.tenants.commands.ssh_keys import add_ssh_key, remove_ssh_key
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import NO_OPERATOR, TENANT_READERS, TENANT_WRITERS
from orchestrator.tenants.ssh_key_format import read_ssh_public_key
from orchestrator.tenants.ssh_key_schemas import AddSshKey, SshKey

router = APIRouter(prefix="/ssh-keys", tags=["ssh keys"], responses=PROBLEM_RESPONSES)


def _tenant_of(caller: Principal) -> UUID:
    assert caller.tenant_id is not None, "the dependency lets only tenants' keys through"
    return caller.tenant_id


@router.post("", status_code=201, response_model=SshKey)
@requires(tenant=TENANT_WRITERS, operator=NO_OPERATOR)
async def add(body: AddSshKey, write: TenantWrite) -> Response:
    """Store a public key."""
    key = read_ssh_public_key(body.public_key)
    tenant_id = _tenant_of(write.caller)
    keys_max = write.parts.settings.tenant_ssh_keys_max
    answer = await add_ssh_key(
        write.context, write.operation(body), tenant_id, name=body.name, key=key, keys_max=keys_max
    )
    return answer_response(answer)


@router.get("", response_model=Page[SshKey])
@requires(tenant=TENANT_READERS, operator=NO_OPERATOR)
async def list_own(query: Annotated[PageQuery, Query()], caller: TenantCaller, parts: Parts) -> Response:
    """The tenant's keys."""
    after, limit = identified_page(query, "ssh-keys")
    found = await ssh_keys.list_ssh_keys(parts.context.database, _tenant_of(caller), after=after, limit=limit)
    return json_response(page_of(found, query.limit, "ssh-keys", lambda key: key.id))


@router.get("/{key_id}", response_model=SshKey)
@requires(tenant=TENANT_READERS, operator=NO_OPERATOR)
async def find(key_id: UUID, caller: TenantCaller, parts: Parts) -> Response:
    """One key."""
    return json_response(await ssh_keys.find_ssh_key(parts.context.database, _tenant_of(caller), key_id))


@router.delete("/{key_id}", status_code=204)
@requires(tenant=TENANT_WRITERS, operator=NO_OPERATOR)
async def remove(key_id: UUID, write: TenantWrite) -> Response:
    """Forget a key; allocations that run keep it."""
    return answer_response(await remove_ssh_key(write.context, write.operation(), _tenant_of(write.caller), key_id))
