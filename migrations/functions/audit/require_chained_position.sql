-- Refuse to move the position of a stream of the audit back, or beyond the newest row of the chain.
create or replace function require_chained_position() returns trigger language plpgsql as $$
begin
    if new.sequence < old.sequence
       or new.sequence > old.sequence and not exists (select from audit_chain c where c.sequence = new.sequence)
    then
        raise exception 'the position of the stream % cannot move from % to %', old.name, old.sequence, new.sequence
            using errcode = 'BB002', table = tg_table_name;
    end if;
    return new;
end $$;
