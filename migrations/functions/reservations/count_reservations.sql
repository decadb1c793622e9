-- Counts live reservations, and among them the holds, which wait for their deadline, in `live_rows` and for each tenant in
-- `tenant_rows`. Refuses what adds one beyond the tenant's quota (BQ002); sessions state the defaults in
-- `berth.tenant_reservations_max` and `berth.tenant_holds_max`, those that do not only count.
create or replace function count_reservations() returns trigger language plpgsql as $$
declare
    diff record;                                             -- tenants, and how many more each has of both kinds
begin
    if tg_op = 'UPDATE' then
        select array_agg(t) as tenants, array_agg(l) as live, array_agg(h) as holds, sum(l)::bigint as all_live, sum(h)::bigint as all_holds
        into diff from (
            select tenant_id as t, coalesce(sum(n) filter (where state in ('hold', 'confirmed')), 0)::bigint as l,
                   coalesce(sum(n) filter (where state = 'hold'), 0)::bigint as h
            from (select tenant_id, state, 1 as n from fresh union all select tenant_id, state, -1 from gone) u group by tenant_id) c
        where l <> 0 or h <> 0;
    elsif tg_op = 'INSERT' then
        select array_agg(t) as tenants, array_agg(l) as live, array_agg(h) as holds, sum(l)::bigint as all_live, sum(h)::bigint as all_holds
        into diff from (
            select tenant_id as t, count(*) filter (where state in ('hold', 'confirmed')) as l,
                   count(*) filter (where state = 'hold') as h from fresh group by tenant_id) c
        where l <> 0;
    else
        select array_agg(t) as tenants, array_agg(l) as live, array_agg(h) as holds, sum(l)::bigint as all_live, sum(h)::bigint as all_holds
        into diff from (
            select tenant_id as t, -count(*) filter (where state in ('hold', 'confirmed')) as l,
                   -count(*) filter (where state = 'hold') as h from gone group by tenant_id) c
        where l <> 0;
    end if;
    if diff.tenants is null then
        return null;
    end if;
    perform count_live('reservations', diff.all_live);
    perform count_live('holds', diff.all_holds);
    insert into tenant_rows (tenant_id, kind, stripe, number)
    select u.tenant, v.kind, pg_backend_pid(), v.number
    from unnest(diff.tenants, diff.live, diff.holds) u(tenant, live, holds)
    cross join lateral (values ('reservations', u.live), ('holds', u.holds)) v(kind, number)
    where v.number <> 0 and exists (select from tenant_quotas q where q.tenant_id = u.tenant)
    on conflict (tenant_id, kind, stripe) do update set number = tenant_rows.number + excluded.number;
    if tg_op = 'INSERT' then
        perform require_tenant_room(q.kind, diff.tenants, q.quota::bigint)
        from (values ('reservations', nullif(current_setting('berth.tenant_reservations_max', true), '')),
                     ('holds', nullif(current_setting('berth.tenant_holds_max', true), ''))) q(kind, quota)
        where q.quota is not null;
    end if;
    return null;
end $$;
