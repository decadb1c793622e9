"""Streams of the audit to other systems, and the expiry of the keys that operators' webhooks belong to."""

from __future__ import annotations

from alembic import op

from migrations.functions import create_functions
from migrations.upgrading import driver_connection

revision = "0024"
down_revision = "0023"

_STREAMS = b"""
create table audit_streams (
    name          text primary key constraint audit_stream_name check (name in ('nats', 'syslog')),
    sequence      bigint not null constraint audit_stream_position check (sequence >= 0),
    started_at    timestamptz not null default clock_timestamp(),
    sent_at       timestamptz,
    leased_by     uuid,
    leased_until  timestamptz,
    failing_since timestamptz,
    last_error    text constraint audit_stream_error_is_short check (length(last_error) <= 500),
    constraint audit_stream_lease_is_whole check ((leased_by is null) = (leased_until is null)),
    constraint audit_stream_failure_is_whole check ((failing_since is null) = (last_error is null))
);
comment on table audit_streams is 'Targets that receive every row of audit_chain, and how far each has come.';
comment on column audit_streams.sequence is 'Every row of the chain up to this one was sent; rows behind it are not archived.';
comment on column audit_streams.sent_at is 'When the position last advanced.';
comment on column audit_streams.leased_by is 'The process that sends; random at its start.';
comment on column audit_streams.leased_until is 'From then on another process may send.';
comment on column audit_streams.failing_since is 'First failure since the target last took rows.';
comment on column audit_streams.last_error is 'Why the target takes nothing; holds no secret.';
"""

_WEBHOOKS = b"""
alter table webhooks drop constraint webhooks_disabled_reason_check;
alter table webhooks add column key_expires_at timestamptz,
    add constraint webhooks_disabled_reason_check
        check (disabled_reason in ('requested', 'gone', 'failing', 'key_revoked', 'key_expired'));
comment on column webhooks.key_expires_at is
    'Operators'': when the key in created_by expires, after which nothing is sent; null: never.';
create index webhooks_of_expiring_keys on webhooks (key_expires_at, id) where state = 'enabled' and key_expires_at is not null;
comment on index webhooks_of_expiring_keys is 'The sweeper disables those past it, the earliest first.';
with recursive line(first, id, replaced_by, expires_at) as (
    select k.id, k.id, k.replaced_by, k.expires_at from api_keys k where k.tenant_id is null
    union
    select line.first, k.id, k.replaced_by, k.expires_at from line join api_keys k on k.id = line.replaced_by
)
update webhooks w set created_by = line.id, key_expires_at = line.expires_at
from line where line.first = w.created_by and line.replaced_by is null and w.tenant_id is null and w.state <> 'deleted';
"""

_TRIGGERS = b"""
create trigger audit_stream_advances before update of sequence on audit_streams for each row
    execute function require_chained_position();
"""


def upgrade() -> None:
    """Add the table and the column; operators' webhooks move to the newest successor of their key."""
    connection = driver_connection(op.get_bind())
    connection.execute(_STREAMS)
    create_functions(connection, ["require_chained_position"])
    connection.execute(_TRIGGERS)
    connection.execute(_WEBHOOKS)
