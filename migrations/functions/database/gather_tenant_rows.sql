-- Moves the counts of tenants by ended backends to this backend's stripe, up to `p_limit` stripes; returns how many it moved.
create or replace function gather_tenant_rows(p_limit integer) returns integer language plpgsql set enable_seqscan = off as $$
declare
    gone integer;
begin
    with left_behind as (
        select tenant_id, kind, stripe from tenant_rows r
        where r.stripe <> pg_backend_pid() and not exists (select from pg_stat_activity a where a.pid = r.stripe)
        limit p_limit for update skip locked
    ), taken as (
        delete from tenant_rows r using left_behind b
        where r.tenant_id = b.tenant_id and r.kind = b.kind and r.stripe = b.stripe
        returning r.tenant_id, r.kind, r.number
    ), summed as (
        select tenant_id, kind, sum(number)::bigint as number, count(*) as stripes from taken group by tenant_id, kind
    ), moved as (
        insert into tenant_rows (tenant_id, kind, stripe, number)
        select tenant_id, kind, pg_backend_pid(), number from summed where number <> 0
        on conflict (tenant_id, kind, stripe) do update set number = tenant_rows.number + excluded.number
    )
    select coalesce(sum(stripes), 0) into gone from summed;
    return gone;
end $$;
