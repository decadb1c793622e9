-- Keys and values of tenants, and of the operators together (DESIGN §7, docs/reference/keyvalue.md).
--
-- Commits of one namespace are serialised by the lock of its row. The mark of a key is the outbox id of the transaction
-- that changed it last. It is drawn under that lock, so marks rise in the order of the namespace's commits, which is the
-- order of their versions in the log, and "changed since version V" can be answered before the change has a version.
-- Lock order: namespaces by id, then operation keys.

create table kv_namespaces (
    id        uuid primary key,
    keys      bigint not null default 0 constraint keys_counted check (keys >= 0),
    bytes     bigint not null default 0 constraint bytes_counted check (bytes >= 0),
    last_mark bigint not null default 0
) with (fillfactor = 50);
comment on table kv_namespaces is 'Namespaces: one for each tenant, one for the operators.';
comment on column kv_namespaces.id is 'The tenant; the nil UUID: the operators.';
comment on column kv_namespaces.keys is 'Rows in kv_keys, deleted keys included.';
comment on column kv_namespaces.bytes is 'Bytes of keys and values.';
comment on column kv_namespaces.last_mark is 'Mark of the newest transaction.';

create table kv_keys (
    namespace uuid not null,
    key       bytea not null constraint key_bounded check (octet_length(key) between 1 and 2048),
    value     bytea,
    mark      bigint not null,
    event_id  uuid not null,
    constraint kv_key primary key (namespace, key)
);
comment on table kv_keys is 'Keys with their present values.';
comment on column kv_keys.value is 'Null: deleted; the tombstone is kept, so that preconditions can be evaluated.';
comment on column kv_keys.mark is 'Outbox id of the transaction that changed the key last.';
comment on column kv_keys.event_id is 'Event of that transaction; its version is in the log.';
-- Keys changed since a mark (preconditions, listings).
create index kv_keys_by_mark on kv_keys (namespace, mark);
-- Delete tombstones that are older than the log (kv_forget).
create index kv_keys_deleted on kv_keys (mark) where value is null;
