-- The refusal of a hold of `p_gpus` GPUs that its tenant's quota does not allow, once the holds `p_due` have ended; null: none.
-- Runs under the planner settings of `hold_once`: setting them again costs more than the call.
create or replace function refuse_quota(p_tenant uuid, p_gpus integer, p_due uuid[]) returns jsonb language plpgsql as $$
declare
    quota record;
begin
    -- Each due hold is fetched by its key: a plan made over an empty table would read the whole table.
    select q.gpus_used - coalesce((
        select sum(r.gpus_held) from unnest(p_due) one(id)
        cross join lateral (select tenant_id, gpus_held from reservations where id = one.id offset 0) r
        where r.tenant_id = p_tenant), 0) as used, q.gpus_limit
    into quota from tenant_quotas q where q.tenant_id = p_tenant;
    if quota.used + p_gpus > quota.gpus_limit then
        return jsonb_build_object('outcome', 'quota', 'gpus_used', quota.used, 'gpus_limit', quota.gpus_limit);
    end if;
    return null;
end $$;
