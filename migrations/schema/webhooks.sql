-- Webhooks (docs/reference/webhooks.md): projections of the log, each with its own offset. Advancing the offset and writing the
-- deliveries is one transaction; sending happens outside of transactions.

create table webhooks (
    id              uuid primary key,
    tenant_id       uuid references tenants (id),
    url             text not null check (length(url) between 1 and 2000),
    description     text check (length(description) <= 1000),
    types           text[] not null default '{}',
    signing         text not null check (signing in ('hmac', 'ed25519')),
    keys            jsonb not null,
    state           text not null default 'enabled' check (state in ('enabled', 'disabled', 'deleted')),
    disabled_reason text check (disabled_reason in ('requested', 'gone', 'failing')),
    disabled_at     timestamptz,
    position        bigint not null check (position >= 0),
    versions_max    bigint not null check (versions_max > 0),
    numbered        bigint not null default 0,
    missed_before   bigint,
    failing_since   timestamptz,
    created_at      timestamptz not null default clock_timestamp(),
    updated_at      timestamptz not null default clock_timestamp(),
    constraint webhook_disabled check ((state = 'disabled') = (disabled_reason is not null) and
                                       (disabled_reason is null) = (disabled_at is null))
) with (fillfactor = 50);
comment on table webhooks is 'Endpoints that receive events.';
comment on column webhooks.tenant_id is 'Null: a webhook of the operators, which receives every event.';
comment on column webhooks.types is 'Event types and families (<family>.*); empty: all.';
comment on column webhooks.keys is 'Signing keys, the newest first: sealed, public_key, until (null: without an end).';
comment on column webhooks.position is 'Offset: every matching event up to this version has its delivery.';
comment on column webhooks.versions_max is 'It keeps at most this many versions of the log below the head.';
comment on column webhooks.numbered is 'Number of its newest delivery.';
comment on column webhooks.missed_before is 'Events below this version were truncated before their delivery was written.';
comment on column webhooks.failing_since is 'First failed attempt since the last success.';
-- List a tenant's webhooks by page.
create index webhooks_by_tenant on webhooks (tenant_id, id) where state <> 'deleted';
-- Delete what is left of deleted webhooks (sweeper).
create index webhooks_deleted on webhooks (id) where state = 'deleted';

create table webhook_deliveries (
    webhook_id       uuid not null references webhooks (id),
    number           bigint not null,
    version          bigint,
    event_id         uuid not null,
    event_type       text not null,
    state            text not null default 'pending' check (state in ('pending', 'succeeded', 'failed')),
    created_at       timestamptz not null default clock_timestamp(),
    next_attempt_at  timestamptz default clock_timestamp(),
    leased           boolean not null default false,
    claims           integer not null default 0,
    attempts         integer not null default 0,
    attempted_at     timestamptz,
    duration_ms      integer,
    response_status  integer,
    response_excerpt text check (length(response_excerpt) <= 1000),
    error            text check (length(error) <= 200),
    history          jsonb not null default '[]',
    ended_at         timestamptz,
    primary key (webhook_id, number),
    constraint webhook_delivery_waits check ((state = 'pending') = (next_attempt_at is not null) and
                                             (state = 'pending') = (ended_at is null))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
comment on table webhook_deliveries is 'Events that a webhook receives, with their attempts.';
comment on column webhook_deliveries.version is 'Version of the event; null: a test message.';
comment on column webhook_deliveries.next_attempt_at is 'When the next attempt is due; while leased, when the lease ends.';
comment on column webhook_deliveries.leased is 'A dispatcher is sending it.';
comment on column webhook_deliveries.claims is 'Attempts ever started. A report names it, so a late report changes nothing.';
comment on column webhook_deliveries.attempts is 'Attempts since the delivery was created or replayed.';
comment on column webhook_deliveries.history is 'The last attempts, the newest last.';
-- Due deliveries of a webhook.
create index webhook_deliveries_due on webhook_deliveries (webhook_id, next_attempt_at) where state = 'pending';
-- The next due time of any webhook.
create index webhook_deliveries_next on webhook_deliveries (next_attempt_at) where state = 'pending';
-- The lowest version that pending deliveries need (log_cursors).
create index webhook_deliveries_needed on webhook_deliveries (webhook_id, version) where state = 'pending';
-- Delete ended deliveries after their retention (sweeper).
create index webhook_deliveries_ended on webhook_deliveries (ended_at) where ended_at is not null;
