create or replace function look_at_opened() returns trigger language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
    update balances b set look_at = least(b.look_at, clock_timestamp())
    from (select distinct tenant_id from opened) o where b.tenant_id = o.tenant_id and b.prepaid;
    return null;
end $$;
