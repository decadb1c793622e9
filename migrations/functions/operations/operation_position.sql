-- Return the last event of a stored operation, and its version and leader: those stored when the log dropped the event,
-- otherwise those in the log. The version is null while the event is not sequenced, and while the log was written by a
-- PostgreSQL that is not the present one: versions may still change then.
create or replace function operation_position(p_scope uuid, p_key text, out event_id uuid, out version bigint, out leader_id text)
language plpgsql stable set enable_seqscan = off as $$
begin
    select o.event_id, o.version, o.leader_id into event_id, version, leader_id
    from operations o where o.scope = p_scope and o.key = p_key;
    if version is null and event_id is not null then
        select l.version, l.leader_id into version, leader_id
        from log_head h cross join log l
        where h.leader_id = postgres_leader_id() and l.event_id = operation_position.event_id;
    end if;
end $$;
