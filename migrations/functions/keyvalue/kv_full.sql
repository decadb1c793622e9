-- Refuse a transaction that would exceed a quota of its namespace.
create or replace function kv_full(p_namespace uuid, p_quota text, p_limit bigint, p_used bigint) returns void language plpgsql as $$
begin
    raise exception 'the quota of % is reached', p_quota using errcode = 'BK001', detail = jsonb_build_object(
        'quota', p_quota, 'tenant_id', p_namespace, 'limit', p_limit, 'used', p_used);
end $$;
