-- Operations: one row for each idempotency key, with the response that a retry receives (DESIGN §6).

create table operations (
    scope        uuid not null,
    key          idempotency_key not null,
    fingerprint  sha256_digest,
    status       smallint,
    code         text,
    body         text,
    subject_id   uuid,
    event_id     uuid,
    version      bigint,
    leader_id    text,
    created_at   timestamptz not null default clock_timestamp(),
    retire_after timestamptz not null,
    ending       boolean not null default false,
    constraint operation_runs_once primary key (scope, key),
    constraint tombstone_is_fenced
        check (fingerprint is not null or (status = 409 and code = 'operation_fenced') is true)
) with (fillfactor = 60);
comment on table operations is 'Idempotency keys with their stored responses.';
comment on column operations.scope is 'The tenant, or for operators the principal.';
comment on column operations.fingerprint is 'SHA-256 over method, path and canonical body. Null: a tombstone of a key whose status was queried before its first use; every later use is refused.';
comment on column operations.status is 'HTTP status; null only inside the transaction that executes the operation.';
comment on column operations.subject_id is 'The allocation or reservation concerned.';
comment on column operations.event_id is 'Its last event; the version is in the log once it is sequenced (operation_position).';
comment on column operations.version is 'Version of that event, stored when the log drops it; null until then.';
comment on column operations.leader_id is 'The PostgreSQL that sequenced that event; stored with the version.';
comment on column operations.retire_after is 'When the row may be deleted.';
comment on column operations.ending is 'A release, cancel or confirm: never refused because the table is full.';
-- Delete operations after their retention (sweeper).
create index operations_retiring on operations (retire_after);

create trigger operations_added after insert on operations referencing new table as fresh
    for each statement execute function count_operations();
create trigger operations_gone after delete on operations referencing old table as gone
    for each statement execute function count_operations();
create trigger operations_emptied after truncate on operations for each statement execute function forget_live_rows();
