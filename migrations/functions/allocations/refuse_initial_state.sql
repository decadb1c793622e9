create or replace function refuse_initial_state() returns trigger language plpgsql as $$
begin
    raise exception 'an allocation begins as requested, not as %', new.state
        using errcode = 'BT001', constraint = 'allocation_begins_requested';
end $$;
