-- The log (DESIGN §7). A transaction writes its events to outbox; sequencing moves them to log in one gapless order,
-- under the lock of the head row and in id order, so that an event never precedes its cause and no row is skipped.

create domain event_type as text check (length(value) between 1 and 100);
create domain event_subject as text check (length(value) <= 200);
create domain event_reference as text check (length(value) <= 255);
create domain event_payload as jsonb constraint payload_bounded check (octet_length(value::text) <= 262144);

create table outbox (
    id             bigint primary key generated always as identity (cache 1),
    event_id       uuid not null default uuidv7(),
    event_type     event_type not null,
    occurred_at    timestamptz not null default clock_timestamp(),
    correlation_id uuid not null,
    tenant_id      uuid,
    subject        event_subject not null,
    operation_key  event_reference,
    request_id     event_reference,
    payload        event_payload not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_insert_threshold = 100000);
comment on table outbox is 'Events that have no version yet.';
comment on column outbox.id is 'Drawn uncached after the subject''s lock; sequencing keeps this order.';
comment on column outbox.tenant_id is 'Null: for operators only.';
comment on column outbox.operation_key is 'Idempotency key of the operation that caused it.';

create table log (
    version        bigint not null,
    prev_version   bigint not null,
    outbox_id      bigint not null,
    event_id       uuid not null,
    event_type     text not null,
    occurred_at    timestamptz not null,
    correlation_id uuid not null,
    tenant_id      uuid,
    subject        text not null,
    operation_key  text,
    request_id     text,
    leader_id      text not null,
    payload        jsonb not null,
    constraint log_version primary key (version)
) partition by range (version);
comment on table log is 'Events in one gapless order; append-only, partitioned by version.';
comment on column log.version is 'Position in the log, which is also the stream sequence in NATS.';
comment on column log.prev_version is 'Previous version of the same tenant; 0: none, or no tenant.';
comment on column log.outbox_id is 'The id that the event had in outbox.';
comment on column log.leader_id is 'System identifier and timeline of the PostgreSQL that sequenced it.';
-- Find an event by its id: versions of reservations, commits and deliveries.
create index log_by_event on log (event_id);
-- Read a tenant's events after a cursor.
create index log_by_tenant on log (tenant_id, version);
-- The event that a workflow was to start from (rescuer).
create index log_starts on log (subject, version)
    where event_type in ('provisioning.requested', 'provisioning.releasing.requested');
-- Key-value transactions of a namespace after a version.
create index log_transactions on log (coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'), version)
    where event_type = 'transaction';
-- The key-value transaction of an idempotency key.
create index log_transaction_keys on log (operation_key) where event_type = 'transaction';

create table log_head (
    one       boolean primary key default true check (one),
    version   bigint not null,
    leader_id text not null,
    partition_versions bigint not null
);
comment on table log_head is 'One row: the newest version. Its lock serialises sequencing.';
comment on column log_head.one is 'Always true, so that there is one row.';
comment on column log_head.leader_id is 'The accepted leader: system identifier and timeline of the PostgreSQL that writes the log.';
comment on column log_head.partition_versions is 'Versions that one partition holds.';

create table log_tenants (
    tenant_id uuid primary key,
    version   bigint not null
) with (fillfactor = 50);
comment on table log_tenants is 'The newest version of each tenant.';

create table log_first (
    one     boolean primary key default true check (one),
    version bigint not null check (version > 0)
);
comment on table log_first is 'One row: the lowest version kept. Its lock serialises truncation with new cursors.';
comment on column log_first.one is 'Always true, so that there is one row.';

create table log_stream (
    one           boolean primary key default true check (one),
    first_version bigint not null check (first_version > 0),
    ordered_at    timestamptz not null default clock_timestamp()
);
comment on table log_stream is 'One row: the JetStream stream as an operator ordered it.';
comment on column log_stream.one is 'Always true, so that there is one row.';
comment on column log_stream.first_version is 'First version of a stream that is created again.';
insert into log_stream (first_version) values (1);

create table log_truncation (
    one           boolean primary key default true check (one),
    looked_at     timestamptz,
    blocked_since timestamptz,
    blocked_below bigint,
    constraint log_truncation_blocked check ((blocked_since is null) = (blocked_below is null))
);
comment on table log_truncation is 'One row: the result of the last truncation attempt.';
comment on column log_truncation.one is 'Always true, so that there is one row.';
comment on column log_truncation.looked_at is 'When truncation last evaluated the oldest partition.';
comment on column log_truncation.blocked_since is 'Since when a partition is old enough but a cursor still needs it; null: not blocked.';
comment on column log_truncation.blocked_below is 'Version that every cursor must reach before the partition is dropped.';
insert into log_truncation default values;

create table consumer_positions (
    consumer   text primary key,
    version    bigint not null check (version >= 0),
    updated_at timestamptz not null default clock_timestamp()
);
comment on table consumer_positions is 'Offset of each consumer: everything up to version is processed.';
-- Registered before their consumers first run: nothing is truncated that was not published or not metered.
insert into consumer_positions (consumer, version) values ('berth-relay', 0), ('metering', 0);

create table dead_letters (
    id           uuid primary key default uuidv7(),
    consumer     text not null check (length(consumer) between 1 and 100),
    version      bigint not null check (version > 0),
    event_id     uuid,
    event_type   text check (length(event_type) <= 100),
    reason       text not null check (reason in ('unreadable', 'stub', 'refused', 'handler_error')),
    detail       text not null check (length(detail) <= 1000),
    excerpt      text not null check (length(excerpt) <= 4000),
    tries        integer not null check (tries > 0),
    state        text not null default 'dead' check (state in ('dead', 'retried', 'discarded')),
    first_at     timestamptz not null,
    last_at      timestamptz not null default clock_timestamp(),
    retry_asked_at timestamptz,
    settled_at   timestamptz,
    row_version  bigint not null default 1,
    constraint dead_letter_once unique (consumer, version),
    constraint dead_letter_settled_has_time check ((state = 'dead') = (settled_at is null)),
    constraint dead_letter_settled_waits_for_nothing check (state = 'dead' or retry_asked_at is null)
);
comment on table dead_letters is 'Messages that a consumer could not process. The log keeps the event; this row keeps the reason and the decision.';
comment on column dead_letters.version is 'Stream sequence of the message.';
comment on column dead_letters.event_id is 'Null: the message could not be parsed.';
comment on column dead_letters.excerpt is 'The first characters of the message.';
comment on column dead_letters.tries is 'Delivery attempts before it was dead-lettered.';
comment on column dead_letters.retry_asked_at is 'When an operator requested a retry; null: no retry is due.';
-- List the dead letters of a consumer, and the lowest version that they need.
create index dead_letters_dead on dead_letters (consumer, id) where state = 'dead';
-- Retries that are due.
create index dead_letters_due on dead_letters (consumer, retry_asked_at, id) where retry_asked_at is not null;
-- Delete settled dead letters after their retention (sweeper).
create index dead_letters_settled on dead_letters (settled_at) where settled_at is not null;

create table retention_policies (
    scope            uuid not null,
    policy_id        text not null check (length(policy_id) between 1 and 100),
    prevent_truncate bigint not null check (prevent_truncate >= 0),
    versions_max     bigint check (versions_max > 0),
    created_at       timestamptz not null default clock_timestamp(),
    updated_at       timestamptz not null default clock_timestamp(),
    constraint retention_policy primary key (scope, policy_id)
);
comment on table retention_policies is 'Clients'' requests to keep the log from a version on.';
comment on column retention_policies.scope is 'The tenant; the nil UUID: the operators.';
comment on column retention_policies.prevent_truncate is 'This version and higher ones are kept.';
comment on column retention_policies.versions_max is 'The policy keeps at most this many versions below the head; null: any number.';

insert into log_head (version, leader_id, partition_versions) values (0, postgres_leader_id(), 1000000);
insert into log_first (version) values (1);
select log_extend(0);
