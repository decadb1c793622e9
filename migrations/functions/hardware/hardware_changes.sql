-- What a report of a node changes: pieces that it has now and had not, or had elsewhere, and pieces that it no longer has.
-- A piece that another node in service reports too is contested, and neither report is taken for true. A piece of a node that is
-- offline or retired, or that is missing there, has moved. `p_known`: kinds that the report lists in full; `p_unread`: positions
-- at which something has no readable serial number, so that nothing is missing there. The caller has locked the serial numbers.
create or replace function hardware_changes(p_node uuid, p_parts jsonb, p_known text[], p_unread text[])
    returns table (serial text, kind text, happened text, node_id uuid, slots smallint[], detail text, contested boolean)
    language sql stable set enable_seqscan = off as $$
    with reported as (
        select r.serial, r.kind, r.slots from jsonb_to_recordset(p_parts) as r (serial text, kind text, slots smallint[])
    ), own as (
        select o.* from hardware_places o where o.node_id = p_node and o.missing_since is null
    ), gone as (
        select o.* from own o
        where o.kind = any (p_known) and not o.positions && p_unread and o.serial not in (select r.serial from reported r)
    ), others as (
        select o.*, n.name, o.missing_since is null and n.online and n.state not in ('registered', 'retired') as reports
        from hardware_places o join nodes n on n.id = o.node_id
        where o.node_id <> p_node and o.serial = any (array(select r.serial from reported r union select g.serial from gone g))
    ), elsewhere as (
        select o.serial, count(*) filter (where o.reports) as rivals, string_agg(o.name, ', ' order by o.name) as names
        from others o group by o.serial
    ), had as (
        select r.serial, r.kind, r.slots, e.names, o.slots as slots_before, coalesce(e.rivals, 0) as rivals,
               case when o.serial is null and e.rivals > 0 then 'contested'
                    when o.serial is null and e.names is not null then 'moved'
                    when o.serial is null then 'seen'
                    when o.contested_since is not null and coalesce(e.rivals, 0) = 0 then 'moved'
                    when o.slots <> r.slots then 'slot' end as change
        from reported r left join own o on o.serial = r.serial left join elsewhere e on e.serial = r.serial
    )
    select h.serial, h.kind, case h.change when 'slot' then 'moved' else h.change end, p_node, h.slots,
           case h.change when 'seen' then 'reported by its node'
                         when 'moved' then coalesce('from node ' || h.names, 'no other node reports it any more')
                         when 'slot' then 'from slots ' || h.slots_before::text
                         else 'also reported by node ' || h.names end, h.rivals > 0
    from had h where h.change is not null
    union all
    select g.serial, g.kind, 'missing', p_node, g.slots, 'no longer reported by its node', g.contested_since is not null from gone g
    union all
    -- The one node that is left had it later: it was there already when this one reported it for the last time.
    select g.serial, o.kind, 'moved', o.node_id, o.slots, 'from node ' || n.name, false
    from gone g join elsewhere e on e.serial = g.serial and e.rivals = 1
    join others o on o.serial = g.serial and o.reports and o.since > g.since join nodes n on n.id = p_node
$$;
