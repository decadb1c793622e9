-- Lock the quotas of these tenants in the order of their ids.
create or replace function lock_quotas(p_tenants uuid[]) returns void language plpgsql set enable_seqscan = off as $$
begin
    perform 1 from tenant_quotas q where q.tenant_id = any (p_tenants) order by q.tenant_id for no key update;
end $$;
