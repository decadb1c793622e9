"""Members of tenants, and invitations of members."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0066"
down_revision = "0065"
LOCKS = ("restore_replays", "tenants")

_STATEMENTS = b"""
create table tenant_members (
    id         uuid primary key,
    tenant_id  uuid not null references tenants (id),
    subject    text not null constraint member_subject_is_bounded check (char_length(subject) between 1 and 255),
    role       text not null constraint member_role check (role in ('viewer', 'member', 'admin', 'billing')),
    name       text constraint member_name_is_bounded check (char_length(name) between 1 and 100),
    invited_by text not null,
    joined_at  timestamptz not null default clock_timestamp()
);
comment on table tenant_members is 'Users of the OIDC issuer that act for a tenant which their token does not name.';
comment on column tenant_members.id is 'The principal: a UUIDv5 of issuer and subject. It is a member of one tenant at most.';
comment on column tenant_members.invited_by is 'The principal that made the invitation.';
create index tenant_members_by_tenant on tenant_members (tenant_id, id);
comment on index tenant_members_by_tenant is 'The members of a tenant by page.';
create table tenant_invitations (
    id          uuid primary key default uuidv7(),
    tenant_id   uuid not null references tenants (id),
    role        text not null constraint invitation_role check (role in ('viewer', 'member', 'admin', 'billing')),
    name        text constraint invitation_name_is_bounded check (char_length(name) between 1 and 100),
    token_hash  bytea not null constraint invitation_token_unique unique
        constraint invitation_token_hash_has_32_bytes check (octet_length(token_hash) = 32),
    created_by  text not null,
    created_at  timestamptz not null default clock_timestamp(),
    expires_at  timestamptz not null,
    accepted_at timestamptz,
    accepted_by uuid,
    revoked_at  timestamptz,
    constraint invitation_acceptance_is_whole check (num_nulls(accepted_at, accepted_by) in (0, 2)),
    constraint invitation_ends_once check (num_nulls(accepted_at, revoked_at) > 0)
);
comment on table tenant_invitations is 'Invitations of members; the token itself is stored nowhere.';
comment on column tenant_invitations.token_hash is 'SHA-256 of the token.';
comment on column tenant_invitations.created_by is 'The principal that invites.';
comment on column tenant_invitations.accepted_by is 'The principal that became a member.';
create index tenant_invitations_by_tenant on tenant_invitations (tenant_id, id);
comment on index tenant_invitations_by_tenant is 'The invitations of a tenant by page.';
alter table restore_replays drop constraint restore_replay_kind, add constraint restore_replay_kind check (
    kind in ('release', 'cancel', 'api_key', 'certificates', 'adopt', 'site_agent', 'adopt_agent', 'bmc_password', 'member',
        'invitation'));
comment on column restore_replays.subject_id is
    'The allocation, reservation, API key, node, agent, member, invitation, or event of an issuance or of a password.';
"""


def upgrade() -> None:
    """Add the tables. A process of the version before refuses members as tokens that name no tenant."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
