"""Members of a tenant and their invitations: its admins invite, and a user with a token of the issuer accepts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import TenantCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, PageQuery, identified_page, page_of
from orchestrator.http.services import Parts, source_of
from orchestrator.http.writes import TenantWrite, unsealed_response
from orchestrator.tenants import queries as tenants
from orchestrator.tenants.commands import members as commands
from orchestrator.tenants.member_schemas import (
    AcceptInvitation,
    CreateInvitation,
    Invitation,
    Member,
    NewInvitation,
    SetMemberRole,
)
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.required_roles import requires, without_roles
from orchestrator.tenants.roles import NO_OPERATOR, TENANT_ADMINS

router = APIRouter(tags=["members"], responses=PROBLEM_RESPONSES)


def _tenant_of(caller: Principal) -> UUID:
    assert caller.tenant_id is not None, "the dependency lets only tenants' principals through"
    return caller.tenant_id


@router.post("/invitations", status_code=201, response_model=NewInvitation)
@requires(tenant=TENANT_ADMINS, operator=NO_OPERATOR)
async def invite(body: CreateInvitation, write: TenantWrite) -> Response:
    """Invite one user; the token is in this answer (and in its replays to the same caller) and nowhere else."""
    answer = await commands.create_invitation(
        write.context,
        write.operation(body),
        write.caller,
        write.sealer(),
        role=body.role,
        name=body.name,
        seconds=body.expires_in_seconds,
        members_max=write.parts.settings.tenant_members_max,
    )
    return unsealed_response(write, answer, "token")


@router.get("/invitations", response_model=Page[Invitation])
@requires(tenant=TENANT_ADMINS, operator=NO_OPERATOR)
async def list_invitations(query: Annotated[PageQuery, Query()], caller: TenantCaller, parts: Parts) -> Response:
    """The tenant's invitations without their tokens, ended ones too."""
    after, limit = identified_page(query, "invitations")
    found = await tenants.list_invitations(parts.context.database, _tenant_of(caller), after=after, limit=limit)
    return json_response(page_of(found, query.limit, "invitations", lambda invitation: invitation.id))


@router.delete("/invitations/{invitation_id}", status_code=204)
@requires(tenant=TENANT_ADMINS, operator=NO_OPERATOR)
async def revoke(invitation_id: UUID, write: TenantWrite) -> Response:
    """Revoke an invitation; a member that has joined by it stays."""
    return answer_response(
        await commands.revoke_invitation(write.context, write.operation(), write.caller, invitation_id)
    )


@router.post("/invitations/accept", response_model=Member)
@without_roles
async def accept(body: AcceptInvitation, request: Request, parts: Parts) -> Response:
    """Become a member: with a token of the issuer that names no tenant and no operator's role.

    A repetition by the same user returns the same member.
    """
    source = source_of(request.scope)
    user = await parts.credentials.user_behind(parts.context.database, request.headers.get("authorization", ""), source)
    await parts.limits.admit(request.scope, user.id)
    async with parts.credentials.attempt(body.token, source):
        member = await commands.accept_invitation(
            parts.context.for_platform(),  # the tenant is known by the invitation alone
            token=body.token,
            principal_id=user.id,
            subject=user.subject,
            request_id=request.scope["state"]["request_id"],
        )
    parts.credentials.forget_members()
    return json_response(asdict(member))


@router.get("/members", response_model=Page[Member])
@requires(tenant=TENANT_ADMINS, operator=NO_OPERATOR)
async def list_members(query: Annotated[PageQuery, Query()], caller: TenantCaller, parts: Parts) -> Response:
    """The tenant's members."""
    after, limit = identified_page(query, "members")
    found = await tenants.list_members(parts.context.database, _tenant_of(caller), after=after, limit=limit)
    return json_response(page_of(found, query.limit, "members", lambda member: member.id))


@router.patch("/members/{member_id}", response_model=Member)
@requires(tenant=TENANT_ADMINS, operator=NO_OPERATOR)
async def set_role(member_id: UUID, body: SetMemberRole, write: TenantWrite) -> Response:
    """Give a member another role."""
    answer = await commands.set_member_role(write.context, write.operation(body), write.caller, member_id, body.role)
    write.parts.credentials.forget_members()
    return answer_response(answer)


@router.delete("/members/{member_id}", status_code=204)
@requires(tenant=TENANT_ADMINS, operator=NO_OPERATOR)
async def remove(member_id: UUID, write: TenantWrite) -> Response:
    """Remove a member, also the last admin: the tenant's API keys remain."""
    answer = await commands.remove_member(write.context, write.operation(), write.caller, member_id)
    write.parts.credentials.forget_members()
    return answer_response(answer)
