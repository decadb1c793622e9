-- Raises BL001 while this Postgres is another one than the log is written by: versions that it would tell could be moved.
create or replace function require_accepted_leader(p_leader text) returns void language plpgsql stable as $$
begin
    if p_leader <> postgres_leader_id() then
        raise exception 'this Postgres has not been accepted as the one that writes the log' using errcode = 'BL001';
    end if;
end $$;
