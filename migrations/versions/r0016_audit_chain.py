"""Audit rows of every operation, and the chain that they are sequenced into."""

from __future__ import annotations

from alembic import op

from migrations.functions import create_functions
from migrations.upgrading import driver_connection

revision = "0016"
down_revision = "0015"

_TABLES = b"""
alter table operations add column caller jsonb;
comment on column operations.caller is 'For the audit row of its conclusion; null once an effect has concluded it.';

create table audit_pending (
    id             bigint primary key generated always as identity (cache 1),
    at             timestamptz not null default clock_timestamp(),
    principal_kind text not null,
    principal_id   text not null,
    role           text,
    tenant_id      uuid,
    source         text,
    user_agent     text,
    action         text not null,
    subject        text not null,
    status         smallint,
    code           text not null default 'ok',
    operation_key  text,
    request_id     text,
    correlation_id uuid,
    detail         jsonb not null default '{}'
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_insert_threshold = 100000);
comment on table audit_pending is 'Audit rows that are not in audit_chain yet; written in the transaction of the action.';
comment on column audit_pending.principal_id is 'Id of the API key, token subject or node, or the name of a part of Berth.';
comment on column audit_pending.tenant_id is 'The tenant of the principal; null for operators, nodes and parts of Berth.';
comment on column audit_pending.source is 'Address of the caller, behind trusted proxies.';
comment on column audit_pending.user_agent is 'At most 200 characters, control characters escaped.';
comment on column audit_pending.subject is 'Kind and id of the object, as in nodes/<id>.';
comment on column audit_pending.status is 'HTTP status of the response; null where no request caused the action.';
comment on column audit_pending.code is 'ok, noop, or the code of the refusal.';

insert into audit_pending (id, at, principal_kind, principal_id, action, subject, detail, request_id) overriding system value
select id, at, principal_kind, principal_id, action, subject, detail, request_id from audit;
select setval(pg_get_serial_sequence('audit_pending', 'id'), greatest((select max(id) from audit_pending), 1),
              exists (select from audit_pending));
drop table audit;
create table audit_chain (
    sequence       bigint primary key,
    recorded_at    timestamptz not null,
    id             bigint not null,
    at             timestamptz not null,
    principal_kind text not null,
    principal_id   text not null,
    role           text,
    tenant_id      uuid,
    source         text,
    user_agent     text,
    action         text not null,
    subject        text not null,
    status         smallint,
    code           text not null,
    operation_key  text,
    request_id     text,
    correlation_id uuid,
    detail         jsonb not null,
    hash           sha256_digest not null
);
comment on table audit_chain is 'Audit rows in one gapless order; each hash covers all rows before it; append-only.';
comment on column audit_chain.sequence is 'Position; gapless.';
comment on column audit_chain.recorded_at is 'When the row entered the chain; never decreases with the sequence.';
comment on column audit_chain.id is 'The id that the row had in audit_pending.';
comment on column audit_chain.hash is 'SHA-256 over the hash before and the canonical form of this row.';
-- Page through the actions on a subject.
create index audit_by_subject on audit_chain (subject, sequence);
-- Page through the actions of a principal.
create index audit_by_principal on audit_chain (principal_id, sequence);
-- Page through the actions of a tenant's principals.
create index audit_by_tenant on audit_chain (tenant_id, sequence);
-- Page through the actions of a kind.
create index audit_by_action on audit_chain (action, sequence);
-- Page through refusals by their code.
create index audit_refusals on audit_chain (code, sequence) where code <> 'ok';
-- Find the first and last sequence of a range of time.
create index audit_by_time on audit_chain (recorded_at, sequence);

create table audit_head (
    one         boolean primary key default true check (one),
    sequence    bigint not null,
    recorded_at timestamptz not null,
    hash        sha256_digest not null
);
comment on table audit_head is 'One row: the newest row of audit_chain. Its lock serialises the chaining.';
comment on column audit_head.one is 'Always true, so that there is one row.';
insert into audit_head (sequence, recorded_at, hash) values (0, '-infinity', decode(repeat('00', 32), 'hex'));

create view audit as
select id, at, principal_kind, principal_id, action, subject, detail, request_id, role, tenant_id, source, user_agent, status,
       code, operation_key, correlation_id, sequence, recorded_at, hash
from audit_chain
union all
select id, at, principal_kind, principal_id, action, subject, detail, request_id, role, tenant_id, source, user_agent, status,
       code, operation_key, correlation_id, null, null, null
from audit_pending;
comment on view audit is 'All audit rows; those without a sequence are not in the chain yet.';
"""

_TRIGGERS = b"""
create trigger audit_inserted instead of insert on audit for each row execute function audit_insert();
create trigger operation_stored after insert on operations for each row
    when (new.status is not null and new.fingerprint is not null) execute function audit_operation();
create trigger operation_concluded before update on operations for each row
    when (old.status is null and new.status is not null) execute function audit_operation();
create trigger audit_chain_keeps before update or delete or truncate on audit_chain
    for each statement execute function refuse_change();
create trigger audit_head_keeps before delete or truncate on audit_head for each statement execute function refuse_change();
create trigger audit_pending_keeps before update or truncate on audit_pending
    for each statement execute function refuse_change();
create trigger audit_pending_moves after delete on audit_pending referencing old table as gone
    for each statement execute function require_chained();
"""


def upgrade() -> None:
    """Move the rows of operators' actions to the new tables; record every operation from the commit on."""
    connection = driver_connection(op.get_bind())
    connection.execute(_TABLES)
    create_functions(connection, ["audit_insert", "audit_operation", "require_chained", "refuse_change"])
    connection.execute(_TRIGGERS)
