-- Counts operations in `live_rows` and for each tenant in `tenant_rows`, and refuses one beyond the bound (BO001) or the
-- tenant's quota (BQ002), whatever statement writes it. Sessions state the bound in `berth.operations_max` and the default of
-- the quota in `berth.tenant_operations_max`; those that do not only count. One statement counts both: a second one costs more.
create or replace function count_operations() returns trigger language plpgsql as $$
declare
    bound   bigint := nullif(current_setting('berth.operations_max', true), '');
    quota   bigint := nullif(current_setting('berth.tenant_operations_max', true), '');
    tenants uuid[];
begin
    if tg_op = 'INSERT' then
        with counted as (
            insert into live_rows (kind, stripe, number)
            select 'operations', pg_backend_pid(), count(*) from fresh having count(*) > 0
            on conflict (kind, stripe) do update set number = live_rows.number + excluded.number
        )
        insert into tenant_rows (tenant_id, kind, stripe, number)
        select scope, 'operations', pg_backend_pid(), count(*) from fresh
        where exists (select from tenant_quotas q where q.tenant_id = scope) group by scope
        on conflict (tenant_id, kind, stripe) do update set number = tenant_rows.number + excluded.number;
        if bound is not null or quota is not null then
            tenants := array(select distinct scope from fresh where not ending);
            if bound is not null and cardinality(tenants) > 0 and room_left('operations', bound) < 0 then
                raise exception 'there is no room for another operation' using errcode = 'BO001';
            end if;
            if quota is not null and cardinality(tenants) > 0 then
                perform require_tenant_room('operations', tenants, quota);
            end if;
        end if;
    else
        with counted as (
            insert into live_rows (kind, stripe, number)
            select 'operations', pg_backend_pid(), -count(*) from gone having count(*) > 0
            on conflict (kind, stripe) do update set number = live_rows.number + excluded.number
        )
        insert into tenant_rows (tenant_id, kind, stripe, number)
        select scope, 'operations', pg_backend_pid(), -count(*) from gone
        where exists (select from tenant_quotas q where q.tenant_id = scope) group by scope
        on conflict (tenant_id, kind, stripe) do update set number = tenant_rows.number + excluded.number;
    end if;
    return null;
end $$;
