-- The body of the response to the hold, whatever state the reservation has reached since.
create or replace function first_reservation_body(r reservations) returns json language plpgsql stable as $$
begin
    r.state := 'hold';
    r.row_version := 1;
    r.expires_at := r.hold_until;
    r.confirmed_at := null;
    r.ended_at := null;
    r.retire_after := null;
    r.failure_code := null;
    r.waits_for := 'holder';
    r.waits_since := r.held_at;
    r.waits_until := r.hold_until;
    return reservation_body(r, null, null, 'ok');
end $$;
