-- The only transitions; the last four are final (DESIGN §4).
create or replace function refuse_illegal_reservation() returns trigger language plpgsql as $$
begin
    if (old.state, new.state) not in (
        ('hold', 'confirmed'), ('hold', 'cancelled'), ('hold', 'expired'), ('hold', 'consumed'),
        ('confirmed', 'consumed'), ('confirmed', 'cancelled'), ('confirmed', 'released')
    ) then
        raise exception 'reservation % cannot go from % to %', old.id, old.state, new.state
            using errcode = 'BT001', constraint = 'reservation_transition_legal';
    end if;
    if new.row_version <> old.row_version + 1 then
        raise exception 'reservation % changed state without its guard', old.id
            using errcode = 'BT001', constraint = 'reservation_transition_guarded';
    end if;
    return new;
end $$;
