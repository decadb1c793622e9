-- Write where the hardware that a node reports is now, and what of it is missing or contested, after these changes. The caller
-- has locked the serial numbers.
create or replace function settle_places(p_node uuid, p_parts jsonb, p_changes jsonb) returns void
    language plpgsql set enable_seqscan = off as $$
declare
    reported constant text[] := array(select r.serial from jsonb_to_recordset(p_parts) as r (serial text));
    gone     constant text[] := array(
        select c.serial from jsonb_to_recordset(p_changes) as c (serial text, happened text) where c.happened = 'missing');
begin
    -- Nodes that no longer report it: the piece is here now.
    delete from hardware_places o using nodes n
    where o.serial = any (reported) and o.node_id <> p_node and n.id = o.node_id
      and not (o.missing_since is null and n.online and n.state not in ('registered', 'retired'));
    insert into hardware_places as o (serial, node_id, kind, model, slots, positions)
    select r.serial, p_node, r.kind, r.model, r.slots, r.positions
    from jsonb_to_recordset(p_parts) as r (serial text, kind text, model text, slots smallint[], positions text[])
    order by r.serial
    on conflict (serial, node_id) do update set kind = excluded.kind, model = excluded.model, slots = excluded.slots,
        positions = excluded.positions, missing_since = null,
        since = case when o.missing_since is null and o.slots = excluded.slots then o.since else clock_timestamp() end
    where (o.kind, o.model, o.slots, o.positions) is distinct from
          (excluded.kind, excluded.model, excluded.slots, excluded.positions) or o.missing_since is not null;
    -- Another node that has it knows the piece; otherwise this one was the last.
    delete from hardware_places o
    where o.serial = any (gone) and o.node_id = p_node and exists (
        select from hardware_places e where e.serial = o.serial and e.node_id <> p_node and e.missing_since is null);
    update hardware_places o set missing_since = clock_timestamp(), contested_since = null
    where o.serial = any (gone) and o.node_id = p_node;
    update hardware_places o
    set contested_since = case when c.nodes > 1 then coalesce(o.contested_since, clock_timestamp()) end
    from (
        select p.serial, count(*) filter (where p.missing_since is null) as nodes from hardware_places p
        where p.serial = any (reported || gone) group by p.serial
    ) c
    where o.serial = c.serial and o.missing_since is null and (c.nodes > 1) <> (o.contested_since is not null);
end $$;
