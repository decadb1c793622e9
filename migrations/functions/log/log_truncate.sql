-- Drops the oldest partition if it is no part of the newest `p_versions_min` versions, all of it is older than
-- `p_age_seconds`, and no consumer needs it. Operations whose events it holds store their versions first, a bounded number in
-- each call. `outcome`: dropped; kept (nothing is old enough); held (a consumer needs it); storing (further operations have to
-- store their versions); busy (readers or writers hold the lock); elsewhere (another session truncates). `first`: the lowest
-- version kept. A waiting DROP blocks all other sessions: never for longer than 50 ms.
create or replace function log_truncate(p_age_seconds float8, p_versions_min bigint, out outcome text, out first bigint)
language plpgsql security definer set search_path = public, pg_temp as $$
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
        elsif store_operation_versions(oldest.lower, oldest.upper,
                                       clock_timestamp() - make_interval(secs => p_age_seconds), 5000) = 5000 then
            outcome := 'storing';
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
