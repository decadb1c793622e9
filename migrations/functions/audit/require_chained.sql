-- Refuse to delete rows of `audit_pending` unless they are the newest of the chain (`audit_advance` has just put them there).
create or replace function require_chained() returns trigger language plpgsql as $$
declare
    removed bigint := (select count(*) from gone);
begin
    if removed <> (select count(*) from gone g join audit_chain c on c.id = g.id
                   where c.sequence > (select h.sequence - removed from audit_head h)) then
        raise exception 'delete of % is refused: its rows are not in the chain', tg_table_name
            using errcode = 'BB002', table = tg_table_name;
    end if;
    return null;
end $$;
