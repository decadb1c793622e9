create or replace function count_resources() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        perform count_live('resources', (select count(*) from fresh));
    else
        perform count_live('resources', -(select count(*) from gone));
    end if;
    return null;
end $$;
