-- Ends the sessions of this database that began before the open restore was seen, but for the caller's. Returns them all, and
-- whether the owner of the schema may end each: it takes a moment. A session that begins later is refused by its own process.
-- Raises BR001 if no restore is open.
create or replace function restore_end_sessions() returns table (pid integer, may_end boolean)
language plpgsql security definer set search_path = public, pg_temp as $$
begin
    if not exists (select from restores where closed_at is null) then
        raise exception 'no restore is open' using errcode = 'BR001';
    end if;
    for pid in
        -- What kind of session it is stays hidden from an owner that may not read all of them.
        select a.pid from pg_stat_activity a
        where a.datname = current_database() and a.usesysid is not null and a.pid <> pg_backend_pid()
          and coalesce(a.backend_type, 'client backend') = 'client backend'
    loop
        begin
            perform pg_terminate_backend(pid);
            may_end := true;
        exception when insufficient_privilege then
            may_end := false;
        end;
        return next;
    end loop;
end $$;
