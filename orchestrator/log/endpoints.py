"""`GET /v1/version`, and `/v1/retention`: policies that keep the log from being truncated (docs/reference/log-retention.md)."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import Caller
from orchestrator.http.fields import NAME_PATTERN
from orchestrator.http.openapi import PROBLEM_RESPONSES, Responses
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.services import Parts
from orchestrator.http.tenant_scope import scoped_tenant
from orchestrator.http.writes import AnyWrite
from orchestrator.log.commands import put_retention_policy, remove_retention_policy
from orchestrator.log.namespaces import namespace_of
from orchestrator.log.queries import find_policy, list_policies
from orchestrator.log.schemas import LogHead, PutRetentionPolicy, RetentionPolicy
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, OPERATOR_ADMINS, TENANT_READERS, TENANT_WRITERS

router = APIRouter(tags=["log"], responses=PROBLEM_RESPONSES)
PolicyPath = Annotated[str, Path(pattern=NAME_PATTERN)]
_CREATED: Responses = {201: {"model": RetentionPolicy, "description": "The policy was created"}}


@router.get("/version", response_model=LogHead)
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def version(caller: Caller, parts: Parts) -> Response:
    """Return the newest version and the leader, for externally consistent reads. Sequences waiting events first."""
    head = await parts.log_head.fresh()
    parts.context.database.note_version(head.version)
    return json_response({"version": head.version, "leader_id": head.leader_id})


@router.get("/retention", response_model=list[RetentionPolicy])
@router.get("/retention/", response_model=list[RetentionPolicy], include_in_schema=False)
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def list_retention_policies(caller: Caller, parts: Parts, tenant_id: UUID | None = None) -> Response:
    """List the policies of the tenant, or of the operators, by id. Operators may list a tenant's."""
    scope = namespace_of(caller) if tenant_id is None else scoped_tenant(caller, tenant_id)
    return json_response(await list_policies(parts.context.database, scope))


@router.get("/retention/{policy_id}", response_model=RetentionPolicy)
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def get_retention_policy(policy_id: PolicyPath, caller: Caller, parts: Parts) -> Response:
    """Return one policy."""
    return json_response(await find_policy(parts.context.database, namespace_of(caller), policy_id))


@router.put("/retention/{policy_id}", response_model=RetentionPolicy, responses=_CREATED)
@requires(tenant=TENANT_WRITERS, operator=OPERATOR_ADMINS)
async def put_policy(policy_id: PolicyPath, body: PutRetentionPolicy, write: AnyWrite) -> Response:
    """Keep the log from a version on. A tenant's policy keeps a bounded number of versions, an operator's any number."""
    settings = write.parts.settings
    answer = await put_retention_policy(
        write.context,
        write.operation(body),
        write.caller,
        namespace_of(write.caller),
        policy_id,
        body.prevent_truncate,
        versions_max=None if write.caller.tenant_id is None else settings.retention_tenant_versions_max,
        policies_max=settings.retention_policies_max,
    )
    return answer_response(answer)


@router.delete("/retention/{policy_id}", status_code=204)
@requires(tenant=TENANT_WRITERS, operator=OPERATOR_ADMINS)
async def delete_policy(policy_id: PolicyPath, write: AnyWrite) -> Response:
    """Delete a policy; the log may then be truncated."""
    scope = namespace_of(write.caller)
    return answer_response(
        await remove_retention_policy(write.context, write.operation(), write.caller, scope, policy_id)
    )
