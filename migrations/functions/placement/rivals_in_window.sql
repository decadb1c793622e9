-- Whether a claim on these units of a node is in the way from `p_now` until `p_until` (null: without an end), and the holds in the
-- way that are past their deadline, which a create may expire. `returns table`: PostgreSQL inlines it.
create or replace function rivals_in_window(p_node uuid, p_units int8multirange, p_until timestamptz, p_now timestamptz)
returns table (busy boolean, overdue uuid[]) language sql stable as $$
    select coalesce(bool_or(not r.overdue), false), coalesce(array_agg(r.owner_id) filter (where r.overdue), '{}')
    from rivals_for(array[p_node], '{}', p_units, tstzrange(p_now, p_until), p_now) r
$$;
