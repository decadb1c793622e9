create or replace function forget_live_rows() returns trigger language plpgsql as $$
begin
    delete from live_rows
    where kind = tg_table_name or (kind = 'holds' and tg_table_name = 'reservations');
    delete from tenant_rows
    where kind = tg_table_name or (kind = 'holds' and tg_table_name = 'reservations');
    return null;
end $$;
