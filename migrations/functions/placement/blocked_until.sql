-- Until when an open claim keeps others from its units, as far as can be said at `p_now`. An occupant whose time is over is
-- not gone at once, so its units are offered from a minute later on; if a person must act, the time is unknown. (Stable and
-- not strict, as the next one is not strict: otherwise they are called for each row instead of becoming part of the query,
-- which costs ten times as much.)
create or replace function blocked_until(
    p_during tstzrange, p_booked boolean, p_occupied boolean, p_waits_until timestamptz, p_now timestamptz
) returns timestamptz language sql stable as $$
    select case when p_booked and upper_inf(p_during) then 'infinity'::timestamptz
                when not p_occupied then upper(p_during)
                when p_booked then greatest(upper(p_during), p_now + interval '1 minute')
                when p_waits_until is null then 'infinity'::timestamptz
                else greatest(p_waits_until, p_now + interval '1 minute') end
$$;
