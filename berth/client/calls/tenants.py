"""The caller's account, its tenant's SSH keys, members and invitations, one function per path (docs/reference/http-api.md)."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from berth.client.calls.call import Call, read, read_page, remove, write
from berth.client.models import Account, Answer, Page, SshKey

API = "/api/v1"
INVITATIONS = "/api/v1/invitations"
MEMBERS = "/api/v1/members"
MemberRole = Literal["viewer", "member", "admin", "billing"]


class Member(Answer):
    """A user of the OIDC issuer that acts for a tenant; `id` is the principal."""

    id: UUID
    tenant_id: UUID
    subject: str
    role: str
    name: str | None = None
    invited_by: str
    joined_at: datetime


class Invitation(Answer):
    """An invitation without its token."""

    id: UUID
    tenant_id: UUID
    role: str
    name: str | None = None
    created_by: str
    created_at: datetime
    expires_at: datetime
    accepted_at: datetime | None = None
    accepted_by: UUID | None = None
    revoked_at: datetime | None = None


class NewInvitation(Invitation):
    """An invitation as shown once, when it is made."""

    token: str


def me() -> Call[Account]:
    """Principal, role, tenant and limits of the caller."""
    return read(f"{API}/me", Account)


def add_ssh_key(*, name: str, public_key: str, idempotency_key: str | None = None) -> Call[SshKey]:
    """Store a public key in OpenSSH's format. Raises `AlreadyExists` when the name or the key is there already."""
    return write("POST", f"{API}/ssh-keys", SshKey, {"name": name, "public_key": public_key}, idempotency_key)


def list_ssh_keys(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[SshKey]]:
    """The tenant's public keys."""
    return read_page(f"{API}/ssh-keys", SshKey, limit=limit, cursor=cursor)


def get_ssh_key(key_id: UUID) -> Call[SshKey]:
    """One public key. Raises `NotFound`."""
    return read(f"{API}/ssh-keys/{key_id}", SshKey)


def remove_ssh_key(key_id: UUID, *, idempotency_key: str | None = None) -> Call[None]:
    """Forget a public key; allocations that run keep theirs."""
    return remove(f"{API}/ssh-keys/{key_id}", idempotency_key)


def create_invitation(
    *,
    role: MemberRole,
    name: str | None = None,
    expires_in_seconds: int | None = None,
    idempotency_key: str | None = None,
) -> Call[NewInvitation]:
    """Invite one user to the caller's tenant; the token is in this answer and nowhere else. Raises `QuotaExceeded`."""
    body = {"role": role, "name": name, "expires_in_seconds": expires_in_seconds}
    return write("POST", INVITATIONS, NewInvitation, body, idempotency_key)


def list_invitations(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Invitation]]:
    """Invitations of the caller's tenant, ended ones too."""
    return read_page(INVITATIONS, Invitation, limit=limit, cursor=cursor)


def revoke_invitation(invitation_id: UUID, *, idempotency_key: str | None = None) -> Call[None]:
    """No user joins by it any more; a member that has joined stays. Raises `NotFound`."""
    return remove(f"{INVITATIONS}/{invitation_id}", idempotency_key)


def accept_invitation(*, token: str, idempotency_key: str | None = None) -> Call[Member]:
    """Become a member, with a token of the issuer as the credential. Raises `InvitationInvalid`, `AlreadyMember`."""
    return write("POST", f"{INVITATIONS}/accept", Member, {"token": token}, idempotency_key)


def list_members(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Member]]:
    """Members of the caller's tenant."""
    return read_page(MEMBERS, Member, limit=limit, cursor=cursor)


def set_member_role(member_id: UUID, *, role: MemberRole, idempotency_key: str | None = None) -> Call[Member]:
    """Give a member another role. Raises `NotFound`."""
    return write("PATCH", f"{MEMBERS}/{member_id}", Member, {"role": role}, idempotency_key)


def remove_member(member_id: UUID, *, idempotency_key: str | None = None) -> Call[None]:
    """The user acts for the tenant no more. Raises `NotFound`."""
    return remove(f"{MEMBERS}/{member_id}", idempotency_key)
