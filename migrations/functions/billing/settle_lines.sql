-- Without these settings a plan made while the table was small would read all tenants for each line.
create or replace function settle_lines() returns trigger language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
    update balances b set settled_micro_units = b.settled_micro_units + w.amount,
                          look_at = case when b.prepaid then least(b.look_at, clock_timestamp()) end
    from (select tenant_id, sum(ledger_sign(kind) * amount_micro_units) as amount from written group by tenant_id) w
    where b.tenant_id = w.tenant_id;
    return null;
end $$;
