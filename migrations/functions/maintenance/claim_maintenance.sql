-- Claim for an open maintenance window what is free of its units on a node: each unit for the part of the window that no right
-- covers. `planned` becomes the units that another right still keeps for a part of it. The caller has locked the node; a repetition
-- changes nothing.
create or replace function claim_maintenance(p_window uuid, p_node uuid) returns void language plpgsql
set enable_seqscan = off as $$
declare
    span  tstzrange;
    wanted  int8multirange;
    stamp constant timestamptz := clock_timestamp();
begin
    select tstzrange(greatest(w.starts_at, stamp), w.ends_at), u.units into span, wanted
    from maintenance_windows w join maintenance_units u on u.window_id = w.id and u.node_id = p_node
    where w.id = p_window and w.state in ('scheduled', 'active') and w.ends_at > stamp;
    if not found then
        return;
    end if;
    with held as materialized (
        -- `offset 0`: by node, not by the index of units and times, which reads all of it for a time alone.
        select c.units, c.during, c.owner_id from (
            select * from claims where node_id = p_node and closed_at is null and booked offset 0
        ) c where c.units && wanted and c.during && span
    ), part as (
        select unit, tstzmultirange(span) - coalesce(range_agg(h.during), '{}') as free,
               coalesce(bool_or(h.owner_id <> p_window), false) as shared
        from unnest(wanted) r cross join lateral generate_series(lower(r), upper(r) - 1) unit
        left join held h on h.units @> unit group by unit
    ), added as (
        insert into claims (node_id, owner_kind, owner_id, units, during, fence)
        select p_node, 'maintenance', p_window, range_agg(int8range(p.unit, p.unit + 1)), piece, nextval('fences')
        from part p cross join lateral unnest(p.free) piece group by piece
    )
    update maintenance_units u set planned = coalesce(
        (select range_agg(int8range(p.unit, p.unit + 1)) from part p where p.shared), '{}')
    where u.window_id = p_window and u.node_id = p_node;
    perform bump_row_versions(p_node, null);
    perform refresh_node_fit(p_node);
end $$;
