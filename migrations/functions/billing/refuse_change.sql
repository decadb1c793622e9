create or replace function refuse_change() returns trigger language plpgsql as $$
begin
    raise exception '% of % is refused: its rows never change', tg_op, tg_table_name
        using errcode = 'BB002', table = tg_table_name;
end $$;
