-- Take in the GPUs and disks that a node reports: write what changed into their history, and where they are now. Returns how many
-- entries were left out by the node's bound, in which case nothing was changed. Two nodes that report one serial number at once
-- are serialised by it. The caller has locked the node.
create or replace function place_hardware(p_node uuid, p_parts jsonb, p_known text[], p_unread text[], p_actor text)
    returns integer language plpgsql set enable_seqscan = off as $$
declare
    places_max constant integer := 256;
    changes    jsonb;
begin
    perform lock_serials(array(
        select r.serial from jsonb_to_recordset(p_parts) as r (serial text)
        union select o.serial from hardware_places o where o.node_id = p_node and o.missing_since is null));
    select coalesce(jsonb_agg(c), '[]') into changes from hardware_changes(p_node, p_parts, p_known, p_unread) c;
    if changes <> '[]' and jsonb_array_length(changes) > hardware_room(p_node, p_actor) then
        return jsonb_array_length(changes);
    end if;
    insert into hardware_history (serial, kind, happened, node_id, slots, actor, detail, contested)
    select c.serial, c.kind, c.happened, c.node_id, c.slots, p_actor, left(c.detail, 1000), c.contested
    from jsonb_to_recordset(changes)
        as c (serial text, kind text, happened text, node_id uuid, slots smallint[], detail text, contested boolean);
    perform settle_places(p_node, p_parts, changes);
    -- What the node no longer has is kept within a bound, the latest first.
    delete from hardware_places where node_id = p_node and serial in (
        select p.serial from hardware_places p
        where p.node_id = p_node and p.missing_since is not null and p.serial in (
            select k.serial from hardware_places k where k.node_id = p_node
            order by k.missing_since is null desc, k.missing_since desc offset places_max)
        for update skip locked);
    return 0;
end $$;
