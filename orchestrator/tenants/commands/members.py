"""Invite users to a tenant, and change and remove its members. A token is returned once and never stored in the clear.

A caller that is a member acts only while it is an admin: each effect locks its membership (`require_admin`).
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import asdict
from uuid import UUID

from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, Done, run_once, transact
from orchestrator.operations.sealing import Sealer
from orchestrator.operations.store.operations import NOOP, Answer, Operation
from orchestrator.operations.store.tenancy import keep_tenant
from orchestrator.tenants.principals import Actor, ActorKind, Principal
from orchestrator.tenants.roles import TenantRole
from orchestrator.tenants.scopes import require_scopes
from orchestrator.tenants.store import members
from orchestrator.tenants.store.members import InvitationWanted, Member

TOKEN_BYTES = 32


async def create_invitation(
    context: Context,
    operation: Operation,
    caller: Principal,
    sealer: Sealer,
    *,
    role: str,
    name: str | None,
    seconds: int,
    members_max: int,
) -> Answer:
    """201 with the invitation; its member `token` is sealed for the caller. 409 `quota_exceeded`.

    Raises `ScopesExceeded` for a key with scopes: a member is not bounded by scopes.
    """
    assert caller.tenant_id is not None, "the route lets only tenants' principals through"
    require_scopes(caller.scopes, None)
    tenant_id, token = caller.tenant_id, f"berth_inv_{secrets.token_urlsafe(TOKEN_BYTES)}"
    digest = hashlib.sha256(token.encode()).digest()
    wanted = InvitationWanted(tenant_id, role, name, digest, str(caller.id), seconds, members_max)

    async def effect(tx: Transaction) -> Done:
        await keep_tenant(tx, tenant_id)
        await members.require_admin(tx, caller)
        made = await members.insert_invitation(tx, wanted)
        detail = {"role": role, "name": name, "expires_at": made.expires_at}
        subject = f"invitations/{made.id}"
        await audit.record(tx, caller.actor, "invitation.create", subject, detail, operation.request_id)
        return Done(201, {**asdict(made), "token": sealer.seal(token)}, made.id)

    return await run_once(context, operation, effect, tenant_id)


async def revoke_invitation(context: Context, operation: Operation, caller: Principal, invitation_id: UUID) -> Answer:
    """204; no user joins by it any more. A repetition changes nothing, and a member that has joined stays. Raises `NotFound`."""
    assert caller.tenant_id is not None, "the route lets only tenants' principals through"
    tenant_id = caller.tenant_id

    async def effect(tx: Transaction) -> Done:
        await members.require_admin(tx, caller)
        if not await members.revoke_invitation(tx, tenant_id, invitation_id):
            return Done(204, None, invitation_id, NOOP)
        subject = f"invitations/{invitation_id}"
        await audit.record(tx, caller.actor, "invitation.revoke", subject, {}, operation.request_id)
        return Done(204, None, invitation_id)

    return await run_once(context, operation, effect, tenant_id)


async def accept_invitation(
    context: Context, *, token: str, principal_id: UUID, subject: str, request_id: str | None
) -> Member:
    """The user as a member. A repetition with the same token returns the same, so a lost response is asked for again.

    Raises what `join_tenant` raises.
    """
    digest = hashlib.sha256(token.encode()).digest()

    async def work(tx: Transaction) -> Member:
        member, invitation_id = await members.join_tenant(tx, digest, principal_id, subject)
        if invitation_id is not None:
            detail = {
                "member_id": str(principal_id), "tenant_id": str(member.tenant_id), "role": member.role, "user": subject,
            }  # fmt: skip
            actor = Actor(ActorKind.TENANT, str(principal_id))
            subject_id = f"invitations/{invitation_id}"
            await audit.record(tx, actor, "invitation.accept", subject_id, detail, request_id, member.tenant_id)
        return member

    return await transact(context, work)


async def set_member_role(
    context: Context, operation: Operation, caller: Principal, member_id: UUID, role: str
) -> Answer:
    """200 with the member; one that is an admin no more has no open invitation either.

    Raises `NotFound`, and `ScopesExceeded` for a key with scopes.
    """
    assert caller.tenant_id is not None, "the route lets only tenants' principals through"
    require_scopes(caller.scopes, None)
    tenant_id = caller.tenant_id

    async def effect(tx: Transaction) -> Done:
        await members.require_admin(tx, caller, member_id)
        member = await members.set_member_role(tx, tenant_id, member_id, role)
        revoked = 0 if role == TenantRole.ADMIN else await members.revoke_invitations_of(tx, tenant_id, member_id)
        detail = {"role": role, "user": member.subject, "invitations_revoked": revoked}
        await audit.record(tx, caller.actor, "member.set_role", f"members/{member_id}", detail, operation.request_id)
        return Done(200, asdict(member), member_id)

    return await run_once(context, operation, effect, tenant_id)


async def remove_member(context: Context, operation: Operation, caller: Principal, member_id: UUID) -> Answer:
    """204; the user's tokens are refused at once here, and within `credential_cache_seconds` by every other process.

    Its open invitations are revoked, so that it does not return by one.

    The last admin may be removed: the tenant's API keys remain. Raises `NotFound`.
    """
    assert caller.tenant_id is not None, "the route lets only tenants' principals through"
    tenant_id = caller.tenant_id

    async def effect(tx: Transaction) -> Done:
        await members.require_admin(tx, caller, member_id)
        await members.remove_member(tx, tenant_id, member_id)
        detail = {"invitations_revoked": await members.revoke_invitations_of(tx, tenant_id, member_id)}
        await audit.record(tx, caller.actor, "member.remove", f"members/{member_id}", detail, operation.request_id)
        return Done(204, None, member_id)

    return await run_once(context, operation, effect, tenant_id)
