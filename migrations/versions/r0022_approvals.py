"""Requests of operators that need a second operator's approval (four eyes)."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0022"
down_revision = "0021"

_STATEMENTS = b"""
create table approvals (
    id                    uuid primary key default uuidv7(),
    action                text not null
        check (action in ('allocation.force_cleanup', 'api_key.create', 'api_key.revoke', 'api_key.rotate')),
    subject_id            uuid,
    parameters            jsonb not null default '{}',
    secret_hash           bytea check (octet_length(secret_hash) = 32),
    state                 text not null default 'pending'
        check (state in ('pending', 'approved', 'rejected', 'withdrawn', 'expired')),
    requested_by          uuid not null,
    requested_role        text not null,
    requested_owner       text,
    requested_break_glass boolean not null,
    requested_at          timestamptz not null default clock_timestamp(),
    decided_by            uuid,
    decided_role          text,
    decided_owner         text,
    decided_break_glass   boolean,
    decision_reason       text,
    ended_at              timestamptz,
    result                jsonb,
    waits_for             text default 'approval',
    waits_since           timestamptz default clock_timestamp(),
    waits_until           timestamptz,
    constraint approval_waits_while_pending check (
        case when state = 'pending' then waits_for is not null and waits_since is not null and waits_until is not null
                                         and ended_at is null
             else waits_for is null and waits_since is null and waits_until is null and ended_at is not null end),
    constraint approval_has_object check ((subject_id is null) = (action = 'api_key.create')),
    constraint approval_decision_is_whole check (
        (decided_by is null) = (decided_role is null) and (decided_by is null) = (decided_break_glass is null)),
    constraint approval_is_decided check ((decided_by is not null) = (state in ('approved', 'rejected', 'withdrawn'))),
    constraint approval_has_result check ((result is not null) = (state = 'approved')),
    constraint approval_secret_ends check (secret_hash is null or state = 'pending')
);
comment on table approvals is 'Requests that a second operator approves before they have an effect, and what became of each.';
comment on column approvals.subject_id is 'The allocation or key that the action concerns; null: it makes its object.';
comment on column approvals.parameters is 'What the action does beyond its object; holds no secret.';
comment on column approvals.secret_hash is 'SHA-256 of the key that an approval makes; null once the wait has ended.';
comment on column approvals.requested_owner is 'Owner of the key, or subject of the token, that requested it.';
comment on column approvals.result is 'What the action made or changed; holds no secret.';
comment on column approvals.waits_until is 'From then on it cannot be approved; the sweeper approvals ends it.';
create unique index one_pending_approval on approvals (action, subject_id) where state = 'pending';
comment on index one_pending_approval is 'One request per action and object waits at a time.';
create index approvals_waiting on approvals (waits_until, id) where state = 'pending';
comment on index approvals_waiting is 'The sweeper reads those past their deadline, the earliest first.';
create index approvals_ended on approvals (ended_at, id) where state <> 'pending';
comment on index approvals_ended is 'The sweeper deletes those past their retention, the earliest first.';
"""


def upgrade() -> None:
    """Add the table. Processes of the version before do not use it."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
