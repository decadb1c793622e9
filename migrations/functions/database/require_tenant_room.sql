-- Refuse rows of tenants beyond their quota of a kind, those of this transaction counted: `tenant_quotas.limits`, else
-- `p_default`; null: none. Near the limit the transactions that add rows for a tenant go one at a time until they commit, so
-- the limit is exact; far from it none waits. Raises BQ002; the detail has quota, tenant_id, limit and used.
-- Without a generic plan the statement is planned at each call, because a list of one tenant looks cheaper than one of ten: 6 % of
-- PostgreSQL's time for a create.
create or replace function require_tenant_room(p_kind text, p_tenants uuid[], p_default bigint) returns void language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
    one   record;
    used_ bigint;
begin
    for one in
        select q.tenant_id, b.bound
        from tenant_quotas q
        cross join lateral (select coalesce((q.limits ->> p_kind)::bigint, p_default) as bound) b
        cross join lateral (select coalesce(sum(r.number), 0) as used from tenant_rows r
                            where r.tenant_id = q.tenant_id and r.kind = p_kind) u
        -- 1,000 at least and 10,000 at most: more than all sessions together add for one tenant before they commit.
        where q.tenant_id = any (p_tenants) and b.bound - u.used < least(10000, greatest(1000, b.bound / 4))
        order by q.tenant_id
    loop
        perform pg_advisory_xact_lock(hashtext(p_kind), hashtext(one.tenant_id::text));
        select coalesce(sum(r.number), 0) into used_ from tenant_rows r where r.tenant_id = one.tenant_id and r.kind = p_kind;
        if used_ > one.bound then
            raise exception 'the quota of % is reached', p_kind using errcode = 'BQ002', detail = jsonb_build_object(
                'quota', p_kind, 'tenant_id', one.tenant_id, 'limit', one.bound, 'used', used_ - 1);
        end if;
    end loop;
end $$;
