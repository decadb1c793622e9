create or replace function refuse_initial_reservation() returns trigger language plpgsql as $$
begin
    raise exception 'a reservation begins as hold, not as %', new.state
        using errcode = 'BT001', constraint = 'reservation_begins_as_hold';
end $$;
