-- How the units of a node are named: all of it by a bare-metal reservation, else slot by slot.
create or replace function names_of_units(p_node uuid, p_shape text, p_units int8multirange) returns text[] language sql stable as $$
    select case when p_shape = 'baremetal' then array['node:' || p_node]
                else (select array_agg('slot:' || p_node || ':' || unit - n.unit_base order by unit)
                      from unnest(p_units) part, generate_series(lower(part), upper(part) - 1) unit) end
    from nodes n where n.id = p_node
$$;
