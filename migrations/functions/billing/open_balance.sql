create or replace function open_balance() returns trigger language plpgsql as $$
begin
    insert into balances (tenant_id) values (new.id);
    return null;
end $$;
