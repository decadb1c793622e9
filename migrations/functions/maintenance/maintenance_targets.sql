-- The units of these nodes and slots, each name with its node; without a node: there is none, or it is retired. Planned without
-- a scan of all slots.
create or replace function maintenance_targets(p_nodes uuid[], p_slots jsonb)
returns table (name text, node_id uuid, part int8range) language sql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
    select u.name, u.node_id, u.part from named_units(p_nodes, p_slots, '{}') u
$$;
