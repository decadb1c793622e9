-- Append faults that a node's report shows to the history of the hardware at these positions; return how many the bound left out.
-- A fault is noted once in 24 hours, so that one that comes and goes does not fill the history. The caller has locked the node.
create or replace function note_faults(p_node uuid, p_faults jsonb, p_actor text) returns integer
    language sql set enable_seqscan = off as $$
    with found as (
        select distinct on (p.serial, f.detail) p.serial, p.kind, p.slots, f.detail, f.evidence,
               p.contested_since is not null as contested
        from jsonb_to_recordset(p_faults) as f (subject text, detail text, evidence text)
        join hardware_places p on p.node_id = p_node and p.missing_since is null and f.subject = any (p.positions)
        where not exists (
            select from hardware_history h
            where h.serial = p.serial and h.node_id = p_node and h.happened = 'fault_found' and h.detail = f.detail
              and h.happened_at > clock_timestamp() - interval '24 hours')
        order by p.serial, f.detail
    ), written as (
        insert into hardware_history (serial, kind, happened, node_id, slots, actor, detail, evidence, contested)
        select serial, kind, 'fault_found', p_node, slots, p_actor, left(detail, 1000), left(evidence, 4000), contested
        from found order by serial, detail limit greatest(hardware_room(p_node, p_actor), 0)
        returning 1
    )
    select ((select count(*) from found) - (select count(*) from written))::integer
$$;
