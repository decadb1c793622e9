-- Named resources: which units they are, and why they cannot be had: `stopped` at any time, `stopped_now` at this moment.
-- Neither a node nor a resource: there is none, or the node has no slots yet.
create or replace function named_units(p_nodes uuid[], p_slots jsonb, p_registered text[])
returns table (name text, node_id uuid, resource_id text, part int8range, stopped text, stopped_now text)
language sql stable as $$
    select 'node:' || a.id, n.id, null::text, int8range(n.unit_base, n.unit_base + n.slot_count),
           case when n.state <> 'active' then 'the node is ' || n.state
                else (select min(coalesce(s.reason, 'a slot is out of service')) from slots s
                      where s.node_id = n.id and s.state = 'out_of_service') end,
           case when not n.online then 'the node is offline' end
    from unnest(p_nodes) a(id) left join nodes n on n.id = a.id and n.state <> 'retired' and n.slot_count > 0
    union all
    select 'slot:' || a.node || ':' || a.index, n.id, null, int8range(s.unit, s.unit + 1),
           case when n.state <> 'active' then 'the node is ' || n.state
                when s.state = 'out_of_service' then coalesce(s.reason, 'the slot is out of service') end,
           case when not n.online then 'the node is offline' end
    from jsonb_to_recordset(p_slots) a(node uuid, index integer)
    left join slots s on s.node_id = a.node and s.slot_index = a.index
    left join nodes n on n.id = s.node_id and n.state <> 'retired'
    union all
    select a.id, null, r.id, int8range(r.unit, r.unit + 1),
           case when r.state = 'out_of_service' then coalesce(r.reason, 'it is out of service') end, null
    from unnest(p_registered) a(id) left join resources r on r.id = a.id
$$;
