"""Quotas of tenants, whose rows are counted; creators of webhooks; drivers of nodes and pools."""

from __future__ import annotations

from alembic import op

from migrations.functions import create_functions
from migrations.upgrading import driver_connection

revision = "0011"
down_revision = "0010"

# No row is added or removed between the count and the commit, from which on the triggers count.
_STATEMENTS = b"""
lock table operations, reservations in share row exclusive mode;
create table tenant_rows (
    tenant_id uuid not null,
    kind      text not null,
    stripe    integer not null,
    number    bigint not null,
    constraint tenant_rows_once primary key (tenant_id, kind, stripe)
) with (fillfactor = 25, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
comment on table tenant_rows is 'Row counts of each tenant kept by triggers: the sum of number over all stripes of a kind.';
comment on column tenant_rows.kind is 'operations, reservations (hold or confirmed) or holds.';
comment on column tenant_rows.stripe is 'Process id of the backend that counted, as in live_rows; 0: the initial count.';
comment on column tenant_rows.number is 'Rows added minus rows removed by this backend; may be negative.';
insert into tenant_rows (tenant_id, kind, stripe, number)
select q.tenant_id, c.kind, 0, count(*)
from tenant_quotas q join (
    select scope as tenant_id, 'operations' as kind from operations
    union all select tenant_id, 'reservations' from reservations where state in ('hold', 'confirmed')
    union all select tenant_id, 'holds' from reservations where state = 'hold'
) c on c.tenant_id = q.tenant_id group by q.tenant_id, c.kind;

alter table tenant_quotas add column limits jsonb not null default '{}';
comment on column tenant_quotas.limits is 'Limits that an operator has set, by quota; others are the defaults.';

alter table kv_namespaces add column log_day date, add column log_bytes bigint not null default 0;
alter table nodes add column driver text;
comment on column nodes.driver is 'What carries tasks out, as its last heartbeat said; null: none since revision 0011.';
alter table pools add column driver text;
comment on column pools.driver is 'Driver of its nodes, set by the first one for real GPUs; another is refused. Null: none yet.';

alter table webhooks add column created_by uuid;
alter table webhooks drop constraint webhooks_disabled_reason_check;
alter table webhooks add constraint webhooks_disabled_reason_check
    check (disabled_reason in ('requested', 'gone', 'failing', 'key_revoked'));
comment on column webhooks.created_by is 'The principal that created it; null: created before revision 0011.';
comment on column kv_namespaces.log_day is 'Day (UTC) of log_bytes; null: nothing was committed yet.';
comment on column kv_namespaces.log_bytes is 'Bytes that commits have written to the log and to stored responses on that day.';
"""


def upgrade() -> None:
    """Count what there is, and count from the commit on."""
    connection = driver_connection(op.get_bind())
    connection.execute(_STATEMENTS)
    create_functions(connection, ["count_operations", "count_reservations", "require_tenant_room", "forget_live_rows"])
