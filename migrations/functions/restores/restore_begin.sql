-- Opens a restore, unless one is open, and returns its epoch. From its commit on each new connection of a process is refused;
-- connections made before are ended by restore_end_sessions. Only restore_close closes it.
create or replace function restore_begin(out epoch uuid, out is_new boolean)
language plpgsql security definer set search_path = public, pg_temp as $$
begin
    -- Two that begin at once open one restore.
    perform from log_head for update;
    select r.epoch into epoch from restores r where r.closed_at is null;
    is_new := not found;
    if is_new then
        insert into restores as r (written_by, leader_id, head_version, last_event_at)
        select h.leader_id, postgres_leader_id(), h.version, l.occurred_at
        from log_head h left join lateral (select occurred_at from log order by version desc limit 1) l on true
        returning r.epoch into epoch;
        insert into audit (principal_kind, principal_id, action, subject, detail)
        values ('system', 'berth restore', 'restore.begin', 'restores/' || restore_begin.epoch, '{}');
    end if;
end $$;
