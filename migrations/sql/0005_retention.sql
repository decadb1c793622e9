-- What may be dropped from the log's beginning, and who needs it still (docs/retention.md).
--
-- The log loses whole partitions, the oldest first, and `log_first` says so in the same transaction. Whoever comes to need
-- versions (a policy, a new consumer, a rebuild of the stream) takes the row of `log_first` before it looks what is there;
-- truncation takes it before it looks who needs what. So nothing that somebody was promised is dropped.

create table retention_policies (
    scope            uuid not null,                          -- the tenant; the nil UUID: the operators
    policy_id        text not null check (length(policy_id) between 1 and 100),
    prevent_truncate bigint not null check (prevent_truncate >= 0),   -- this version and higher ones are kept
    versions_max     bigint check (versions_max > 0),        -- how far behind the head it holds; null: any distance
    created_at       timestamptz not null default clock_timestamp(),
    updated_at       timestamptz not null default clock_timestamp(),
    constraint retention_policy primary key (scope, policy_id)
);

-- What the last look at the log's beginning found. While a partition is old enough and somebody needs it still, it waits
-- since `blocked_since`, for every cursor to come to `blocked_below`.
create table log_truncation (
    one           boolean primary key default true check (one),
    looked_at     timestamptz,
    blocked_since timestamptz,
    blocked_below bigint,
    constraint log_truncation_blocked check ((blocked_since is null) = (blocked_below is null))
);
insert into log_truncation default values;

-- These are there before whom they are of: nothing is dropped that NATS was not given, or that was not metered.
insert into consumer_positions (consumer, version) values ('berth-relay', 0), ('metering', 0) on conflict do nothing;

-- Who needs the log, and from which version on. A consumer registers with its row in `consumer_positions`; whatever keeps
-- its positions elsewhere adds its part here.
create view log_cursors (kind, name, tenant_id, needs_from, since) as
select 'policy', p.policy_id, nullif(p.scope, '00000000-0000-0000-0000-000000000000'),
       greatest(1, p.prevent_truncate, h.version - p.versions_max), p.updated_at
from retention_policies p cross join log_head h
union all
select 'consumer', c.consumer, null, c.version + 1, c.updated_at from consumer_positions c
union all
-- A retry hands the event over as the log has it.
select 'dead_letters', d.consumer, null, min(d.version), min(d.first_at) from dead_letters d where d.state = 'dead' group by d.consumer;

-- Drops the oldest partition if it is no part of the newest `p_versions_min` versions, all of it is older than
-- `p_age_seconds`, and nobody needs it. `outcome`: dropped; kept (nothing is old enough); held (somebody needs it); busy
-- (readers or writers were not to be waited for); elsewhere (another session is at it). `first`: the lowest version kept.
-- A waiting DROP keeps everybody else waiting: never for longer than 50 ms.
create function log_truncate(p_age_seconds float8, p_versions_min bigint, out outcome text, out first bigint)
language plpgsql as $$
declare
    head   bigint;
    oldest record;
    due    boolean;
begin
    if not pg_try_advisory_xact_lock(hashtext('berth.log.truncate')) then
        outcome := 'elsewhere';
        return;
    end if;
    perform set_config('lock_timeout', '50ms', true);
    begin
        select f.version into first from log_first f for update;
        select h.version into head from log_head h;
        select i.inhrelid::regclass as name, (limits.found)[1]::bigint as lower, (limits.found)[2]::bigint as upper into oldest
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
             cross join lateral regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''(\d+)''\) TO \(''(\d+)''\)') limits(found)
        where i.inhparent = 'log'::regclass
        order by lower limit 1;
        -- The head's partition stays. Times rise with versions but for what one transaction lasts.
        due := oldest.upper <= head and head - oldest.upper + 1 >= p_versions_min and not exists (
            select from log l where l.version >= oldest.upper - 10000 and l.version < oldest.upper
            and l.occurred_at >= clock_timestamp() - make_interval(secs => p_age_seconds));
        if not due then
            outcome := 'kept';
        elsif exists (select from log_cursors c where c.needs_from < oldest.upper) then
            outcome := 'held';
        else
            execute format('drop table %s', oldest.name);
            update log_first f set version = oldest.upper;
            first := oldest.upper;
            outcome := 'dropped';
        end if;
        update log_truncation t set
            looked_at = clock_timestamp(),
            blocked_since = case when outcome = 'held' then coalesce(t.blocked_since, clock_timestamp()) end,
            blocked_below = case when outcome = 'held' then oldest.upper end;
    exception when lock_not_available or deadlock_detected then
        outcome := 'busy';
    end;
end $$;
