-- Webhooks (docs/webhooks.md): each is a projection of the log with a position of its own. Moving the position and writing
-- what is to be delivered is one transaction; sending is none.

create table webhooks (
    id              uuid primary key,
    tenant_id       uuid references tenants (id),            -- null: the operators', which sees every event
    url             text not null check (length(url) between 1 and 2000),
    description     text check (length(description) <= 1000),
    types           text[] not null default '{}',            -- types, and families `<family>.*`; none: all
    signing         text not null check (signing in ('hmac', 'ed25519')),
    keys            jsonb not null,                          -- the newest first: sealed, public_key, until (null: for good)
    state           text not null default 'enabled' check (state in ('enabled', 'disabled', 'deleted')),
    disabled_reason text check (disabled_reason in ('requested', 'gone', 'failing')),
    disabled_at     timestamptz,
    position        bigint not null check (position >= 0),   -- what is meant of everything up to here has its delivery
    versions_max    bigint not null check (versions_max > 0),    -- how far behind the head it keeps the log
    numbered        bigint not null default 0,               -- the number of its newest delivery
    missed_before   bigint,                                  -- events before this version were gone before their delivery
    failing_since   timestamptz,                             -- when the first attempt failed since the last that succeeded
    created_at      timestamptz not null default clock_timestamp(),
    updated_at      timestamptz not null default clock_timestamp(),
    constraint webhook_disabled check ((state = 'disabled') = (disabled_reason is not null) and
                                       (disabled_reason is null) = (disabled_at is null))
) with (fillfactor = 50);
create index webhooks_by_tenant on webhooks (tenant_id, id) where state <> 'deleted';
create index webhooks_deleted on webhooks (id) where state = 'deleted';

-- `next_attempt_at`: while an attempt is under way (`leased`), when it is taken for lost. `claims` counts attempts ever begun:
-- whoever reports one names it, so a report that comes too late changes nothing. `attempts` begins anew at a replay.
create table webhook_deliveries (
    webhook_id       uuid not null references webhooks (id),
    number           bigint not null,
    version          bigint,                                 -- of its event in the log; null: a test message
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
    history          jsonb not null default '[]',            -- the last attempts, the newest last
    ended_at         timestamptz,
    primary key (webhook_id, number),
    constraint webhook_delivery_waits check ((state = 'pending') = (next_attempt_at is not null) and
                                             (state = 'pending') = (ended_at is null))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
create index webhook_deliveries_due on webhook_deliveries (webhook_id, next_attempt_at) where state = 'pending';
create index webhook_deliveries_next on webhook_deliveries (next_attempt_at) where state = 'pending';
create index webhook_deliveries_needed on webhook_deliveries (webhook_id, version) where state = 'pending';
create index webhook_deliveries_ended on webhook_deliveries (ended_at) where ended_at is not null;

-- A webhook that is enabled needs what it has not come to, and what its pending deliveries will read, within its bound. A
-- tenant's that has come to the tenant's newest event needs nothing older than what comes next.
do $$
begin
    execute 'create or replace view log_cursors (kind, name, tenant_id, needs_from, since) as '
        || rtrim(pg_get_viewdef('log_cursors'::regclass), E'; \n') || $part$
union all
select 'webhook', w.id::text, w.tenant_id,
       greatest(1, h.version - w.versions_max,
                least(case when w.tenant_id is not null and coalesce(t.version, 0) <= w.position then h.version else w.position end + 1,
                      (select min(d.version) from webhook_deliveries d where d.webhook_id = w.id and d.state = 'pending'))),
       w.updated_at
from webhooks w cross join log_head h left join log_tenants t on t.tenant_id = w.tenant_id
where w.state = 'enabled'$part$;
end $$;
