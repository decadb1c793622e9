-- The resources of a maintenance window by name, a node instead of all of its slots, and the slots that are still planned.
create or replace function maintenance_names(p_window uuid, out resources text[], out planned text[]) language sql stable as $$
    select coalesce(array_agg(named.name order by n.unit_base, unit) filter (where named.name is not null), '{}'),
           coalesce(array_agg('slot:' || n.id || ':' || unit - n.unit_base order by unit) filter (where m.planned @> unit), '{}')
    from maintenance_units m join nodes n on n.id = m.node_id
    cross join lateral unnest(m.units) part cross join lateral generate_series(lower(part), upper(part) - 1) unit
    cross join lateral (select case
        when m.units <> int8multirange(int8range(n.unit_base, n.unit_base + n.slot_count))
        then 'slot:' || n.id || ':' || unit - n.unit_base
        when unit = n.unit_base then 'node:' || n.id end as name) named
    where m.window_id = p_window
$$;
