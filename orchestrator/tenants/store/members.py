"""Members of tenants and their invitations: of a token only its SHA-256 is stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.operations.store.tenancy import keep_tenant, require_quota
from orchestrator.problems import Forbidden, NotFound, Quota, RoleRequired, TenantDeleted
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.refusals import AlreadyMember, InvitationInvalid
from orchestrator.tenants.roles import TENANT_ADMINS, TenantRole
from orchestrator.tenants.tables import tenant_invitations, tenant_members

ENDED_KEPT_MAX = 1_000
"""Ended invitations of a tenant that stay listed, the newest ones; the audit has all."""
ENDED_SECONDS_MAX = 30 * 86_400
"""How long an ended invitation stays listed at most after the next one is made."""


@dataclass(frozen=True, slots=True)
class Member:
    """A user that acts for a tenant; `id` is the principal."""

    id: UUID
    tenant_id: UUID
    subject: str
    role: str
    name: str | None
    invited_by: str
    joined_at: datetime


@dataclass(frozen=True, slots=True)
class Membership:
    """What a token without a tenant gets from it. `active`: its tenant is neither suspended nor deleted."""

    tenant_id: UUID
    role: str
    active: bool


@dataclass(frozen=True, slots=True)
class Invitation:
    """An invitation without its token."""

    id: UUID
    tenant_id: UUID
    role: str
    name: str | None
    created_by: str
    created_at: datetime
    expires_at: datetime
    accepted_at: datetime | None
    accepted_by: UUID | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class InvitationWanted:
    """An invitation to make; `members_max`: the default of the tenant's quota of members and open invitations."""

    tenant_id: UUID
    role: str
    name: str | None
    token_hash: bytes
    created_by: str
    seconds: int
    members_max: int


_MEMBERS = select(*(tenant_members.c[name] for name in Member.__slots__)).order_by(tenant_members.c.id)
_INVITATIONS = select(*(tenant_invitations.c[name] for name in Invitation.__slots__)).order_by(tenant_invitations.c.id)
_COUNT = """
select (select count(*) from tenant_members where tenant_id = :id)
     + (select count(*) from tenant_invitations
        where tenant_id = :id and accepted_at is null and revoked_at is null and expires_at > clock_timestamp())
"""
_DROP_ENDED = """
delete from tenant_invitations where id in (
    select id from tenant_invitations where id in (
        select id from (
            select id, row_number() over (order by id desc) as place, coalesce(accepted_at, revoked_at, expires_at) as ended_at
            from tenant_invitations
            where tenant_id = :tenant_id
              and (accepted_at is not null or revoked_at is not null or expires_at <= clock_timestamp())) ended
        where place > :kept or ended_at < clock_timestamp() - make_interval(secs => :seconds)
    ) for update skip locked
)
"""
_INVITE = """
insert into tenant_invitations (tenant_id, role, name, token_hash, created_by, expires_at)
values (:tenant_id, :role, :name, :token_hash, :created_by, clock_timestamp() + make_interval(secs => :seconds))
returning id, tenant_id, role, name, created_by, created_at, expires_at, accepted_at, accepted_by, revoked_at
"""
_REVOKE = """
update tenant_invitations set revoked_at = clock_timestamp()
where id = :id and tenant_id = :tenant_id and accepted_at is null and revoked_at is null returning id
"""
_IS_THERE = "select exists(select from tenant_invitations where id = :id and tenant_id = :tenant_id)"
_TENANT_OF = "select tenant_id from tenant_invitations where token_hash = :hash"
_LOCK = "select id from tenant_invitations where token_hash = :hash for update"
# After the lock, so that the clock is.
_READ_LOCKED = """
select i.id, i.tenant_id, i.role, i.name, i.created_by, i.accepted_by,
       i.accepted_at is null and i.revoked_at is null and i.expires_at > clock_timestamp() and t.state = 'active' as is_open
from tenant_invitations i join tenants t on t.id = i.tenant_id where i.token_hash = :hash
"""
_JOIN = """
insert into tenant_members (id, tenant_id, subject, role, name, invited_by)
values (:id, :tenant_id, :subject, :role, :name, :invited_by)
on conflict do nothing returning id, tenant_id, subject, role, name, invited_by, joined_at
"""
_ACCEPTED = """
update tenant_invitations set accepted_at = clock_timestamp(), accepted_by = :accepted_by where id = :id
"""
# A change of the role waits for this lock too, not only a removal. The caller and the member that it changes are locked in one
# order, so that two admins that remove each other do not wait for each other.
_KEEP_ROLE = "select role from tenant_members where id = :id and tenant_id = :tenant_id for share"
_LOCK_BOTH = """
select id, role from tenant_members where id in (:id, :other) and tenant_id = :tenant_id order by id for no key update
"""
_SET_ROLE = """
update tenant_members set role = :role where id = :id and tenant_id = :tenant_id
returning id, tenant_id, subject, role, name, invited_by, joined_at
"""
_REVOKE_OF = """
update tenant_invitations set revoked_at = clock_timestamp()
where tenant_id = :tenant_id and created_by = :made_by and accepted_at is null and revoked_at is null
"""
_REMOVE = "delete from tenant_members where id = :id and tenant_id = :tenant_id"
_MEMBERSHIP = """
select m.tenant_id, m.role, t.state = 'active' as active from tenant_members m join tenants t on t.id = m.tenant_id
where m.id = :id
"""


async def require_admin(tx: Transaction, caller: Principal, changed: UUID | None = None) -> None:
    """A caller that is a member is an admin still, and stays one until the transaction ends; other principals pass.

    What it read of its membership may be as old as the cache of credentials: a removed admin would make itself another way in.
    `changed`: the member that the caller changes. Raises `Forbidden` if the caller is a member no more, else `RoleRequired`.
    """
    if not caller.is_member:
        return
    values = {"id": caller.id, "tenant_id": caller.tenant_id}
    if changed is None:
        role: str | None = (await tx.execute(_KEEP_ROLE, values)).scalar_one_or_none()
    else:
        locked = await tx.execute(_LOCK_BOTH, {**values, "other": changed})
        role = {row.id: row.role for row in locked}.get(caller.id)
    if role is None:
        raise Forbidden("the caller is no member of this tenant any more; ask an admin of the tenant for an invitation")
    if role != TenantRole.ADMIN:
        raise RoleRequired.of(role, TENANT_ADMINS)


async def insert_invitation(tx: Transaction, wanted: InvitationWanted) -> Invitation:
    """An open invitation. Raises `QuotaExceeded`. Also deletes old ended ones, so that a tenant's rows are bounded."""
    values = {"id": wanted.tenant_id}
    await require_quota(tx, wanted.tenant_id, Quota.MEMBERS, _COUNT, values, default=wanted.members_max)
    ended = {"tenant_id": wanted.tenant_id, "kept": ENDED_KEPT_MAX, "seconds": ENDED_SECONDS_MAX}
    await tx.execute(_DROP_ENDED, ended)
    made = {
        "tenant_id": wanted.tenant_id, "role": wanted.role, "name": wanted.name, "token_hash": wanted.token_hash,
        "created_by": wanted.created_by, "seconds": wanted.seconds,
    }  # fmt: skip
    return Invitation(**(await tx.execute(_INVITE, made)).one()._mapping)


async def list_invitations(reading: Reading, tenant_id: UUID, after: UUID, limit: int) -> list[Invitation]:
    """Up to `limit` invitations of the tenant in the order in which they were made, ended ones too."""
    own = tenant_invitations.c.tenant_id == tenant_id
    page = _INVITATIONS.where(own, tenant_invitations.c.id > after).limit(limit)
    return [Invitation(**row._mapping) for row in await reading.execute(page)]


async def revoke_invitation(tx: Transaction, tenant_id: UUID, invitation_id: UUID) -> bool:
    """No user joins by it from the commit on; False: it had ended by use or revocation. Raises `NotFound`."""
    values = {"id": invitation_id, "tenant_id": tenant_id}
    if (await tx.execute(_REVOKE, values)).first() is not None:
        return True
    if not (await tx.execute(_IS_THERE, values)).scalar_one():
        raise NotFound(f"there is no invitation {invitation_id}")
    return False


async def join_tenant(
    tx: Transaction, token_hash: bytes, principal_id: UUID, subject: str
) -> tuple[Member, UUID | None]:
    """Make the user a member by an open invitation, which is used up; return the member and the invitation.

    A repetition by the same user returns its membership and None. Raises one and the same `InvitationInvalid` for a token that is
    unknown, used, revoked, expired or of a tenant that is not active, and `AlreadyMember`.
    """
    values = {"hash": token_hash}
    tenant_id = (await tx.execute(_TENANT_OF, values)).scalar_one_or_none()
    if tenant_id is None:
        raise _invalid()
    try:
        await keep_tenant(tx, tenant_id)
    except TenantDeleted as deleted:
        raise _invalid() from deleted
    await tx.execute(_LOCK, values)
    found = (await tx.execute(_READ_LOCKED, values)).first()
    if found is None:
        raise _invalid()
    there = (await tx.execute(_MEMBERS.where(tenant_members.c.id == principal_id))).first()
    if there is not None and found.accepted_by == principal_id and there.tenant_id == tenant_id:
        return Member(**there._mapping), None
    if not found.is_open:
        raise _invalid()
    joining = {
        "id": principal_id, "tenant_id": tenant_id, "subject": subject, "role": found.role, "name": found.name,
        "invited_by": found.created_by,
    }  # fmt: skip
    made = (await tx.execute(_JOIN, joining)).first()
    if made is None:
        raise AlreadyMember("this user is a member of a tenant already; its admin has to remove it first")
    await tx.execute(_ACCEPTED, {"id": found.id, "accepted_by": principal_id})
    return Member(**made._mapping), found.id


async def list_members(reading: Reading, tenant_id: UUID, after: UUID, limit: int) -> list[Member]:
    """Up to `limit` members of the tenant in the order of their ids."""
    page = _MEMBERS.where(tenant_members.c.tenant_id == tenant_id, tenant_members.c.id > after).limit(limit)
    return [Member(**row._mapping) for row in await reading.execute(page)]


async def set_member_role(tx: Transaction, tenant_id: UUID, member_id: UUID, role: str) -> Member:
    """The member with this role. Raises `NotFound`, also for another tenant's."""
    row = (await tx.execute(_SET_ROLE, {"id": member_id, "tenant_id": tenant_id, "role": role})).first()
    if row is None:
        raise _no_member(member_id)
    return Member(**row._mapping)


async def remove_member(tx: Transaction, tenant_id: UUID, member_id: UUID) -> None:
    """The user acts for the tenant no more. Raises `NotFound`, also for another tenant's."""
    if (await tx.execute(_REMOVE, {"id": member_id, "tenant_id": tenant_id})).rowcount == 0:
        raise _no_member(member_id)


async def revoke_invitations_of(tx: Transaction, tenant_id: UUID, member_id: UUID) -> int:
    """No user joins any more by what this member has invited; return how many invitations that are."""
    return (await tx.execute(_REVOKE_OF, {"tenant_id": tenant_id, "made_by": str(member_id)})).rowcount


async def find_membership(reading: Reading, principal_id: UUID) -> Membership | None:
    """The membership of a principal; None: it is a member of no tenant."""
    row = (await reading.execute(_MEMBERSHIP, {"id": principal_id})).first()
    return None if row is None else Membership(**row._mapping)


def _invalid() -> InvitationInvalid:
    return InvitationInvalid(
        "this invitation is unknown, used, revoked or expired; ask an admin of the tenant for another"
    )


def _no_member(member_id: UUID) -> NotFound:
    return NotFound(f"there is no member {member_id}")
