-- Append what happened to slots of a node to the history of the hardware in them. A slot whose hardware is missing names that one.
-- Hardware without a known serial number has no history.
create or replace function note_hardware(
    p_node uuid, p_slots smallint[], p_happened text, p_actor text, p_detail text, p_evidence text, p_reference uuid
) returns void language sql set enable_seqscan = off as $$
    insert into hardware_history (serial, kind, happened, node_id, slots, actor, detail, evidence, reference, contested)
    select p.serial, p.kind, p_happened, p.node_id, p.slots, p_actor, left(p_detail, 1000), left(p_evidence, 4000), p_reference,
           p.contested_since is not null
    from hardware_places p
    where p.node_id = p_node and p.slots && p_slots
      and (p.missing_since is null or not exists (
          select from hardware_places o where o.node_id = p_node and o.missing_since is null and o.slots && p.slots))
    order by p.serial
$$;
