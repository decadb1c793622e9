-- Return a tenant's limit of a quota (null: the operators), and let additions to it go one at a time until the transaction ends.
-- Call it before counting what there is.
create or replace function lock_quota(p_tenant uuid, p_quota text, p_default bigint) returns bigint language plpgsql
set enable_seqscan = off as $$
begin
    perform pg_advisory_xact_lock(hashtext(p_quota), hashtext(coalesce(p_tenant::text, '')));
    return coalesce((select (q.limits ->> p_quota)::bigint from tenant_quotas q where q.tenant_id = p_tenant), p_default);
end $$;
