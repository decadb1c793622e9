-- Take slots of a node out of service that have a quarantine, an orphan or a drift, or all of them while the inventory of the
-- node is awaited after a restore; return slots to service that were out for one of these reasons and have none now.
-- A slot with several reasons stores the first. A slot with any other reason was taken out by hand, and is not changed.
-- No other function changes the state of a slot. The caller has locked the node.
create or replace function keep_slots_v2(p_node uuid) returns void language plpgsql set enable_seqscan = off as $$
declare
    orphaned    constant text := 'an orphan is on it; see berth node orphans';
    drifted     constant text := 'its hardware differs from the approved topology; see berth node topology';
    quarantined constant text := 'quarantined: ';
    awaited     constant text := 'the inventory of its node is awaited after a restore; see berth restore nodes';
begin
    update slots s set state = case when k.reason is null then 'in_service' else 'out_of_service' end, reason = k.reason
    from (
        select s.unit, coalesce(
            (select quarantined || q.reason from slot_quarantines q where q.unit = s.unit and q.returned_at is null),
            case when exists (select from node_orphans o where o.node_id = s.node_id and o.state <> 'destroyed'
                                                           and s.slot_index = any (o.slots)) then orphaned
                 when exists (select from node_topologies t where t.node_id = s.node_id
                                                              and s.slot_index = any (t.drifted_slots)) then drifted
                 when exists (select from awaited_inventories w where w.node_id = s.node_id) then awaited
            end) as reason
        from slots s where s.node_id = p_node
    ) k
    where s.unit = k.unit and k.reason is distinct from s.reason
      and (s.state = 'in_service' or s.reason in (orphaned, drifted, awaited) or starts_with(s.reason, quarantined));
    perform refresh_node_fit(p_node);
end $$;
