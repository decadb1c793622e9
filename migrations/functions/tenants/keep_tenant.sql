-- Keep a tenant from being deleted until the transaction ends; return false if it is deleted. Writes that change no quota call
-- it: `delete_tenant` waits for this lock, and a transaction that waited for a deletion finds no row.
create or replace function keep_tenant(p_tenant uuid) returns boolean language plpgsql set enable_seqscan = off as $$
begin
    perform from tenant_quotas q where q.tenant_id = p_tenant for key share;
    return found;
end $$;
