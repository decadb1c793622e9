create or replace function refuse_reopening() returns trigger language plpgsql as $$
begin
    if old.ended_at is not null
       or (to_jsonb(new) - array['ended_at', 'closed_version']) <> (to_jsonb(old) - array['ended_at', 'closed_version']) then
        raise exception 'the interval of allocation % is closed once, and nothing else of it changes', old.allocation_id
            using errcode = 'BB002', table = 'metering_intervals';
    end if;
    return new;
end $$;
