-- Close the open fault reports of an allocation whose claim was closed, and put the units that they name into quarantine. They
-- are never free in between: the caller has locked the node and closed the claim in the same transaction.
-- A slot that is in quarantine already stays in that one, which then returns as one with a fault does.
create or replace function quarantine_reported_units(p_allocation uuid) returns void language plpgsql set enable_seqscan = off as $$
declare
    reported uuid;
begin
    select r.node_id into reported from fault_reports r where r.allocation_id = p_allocation and r.closed_at is null limit 1;
    if reported is null then
        return;
    end if;
    with closed as (
        update fault_reports r set closed_at = clock_timestamp() where r.allocation_id = p_allocation and r.closed_at is null
        returning r.id, r.node_id, r.slots, r.symptom
    ), named as (
        select distinct on (s.unit) s.unit, s.node_id, s.slot_index, c.id, 'fault reported: ' || c.symptom as reason
        from closed c join slots s on s.node_id = c.node_id and s.slot_index = any (c.slots) order by s.unit, c.id
    ), begun as (
        insert into slot_quarantines (node_id, slot_index, unit, reason, quarantined_by, source, fault_report_id)
        select n.node_id, n.slot_index, n.unit, n.reason, 'system:fault_report', 'fault_report', n.id
        from named n order by n.unit
        on conflict (unit) where returned_at is null do update set last_fault_at = clock_timestamp()
        -- Of an updated row the one before is locked by this transaction.
        returning node_id, slot_index, reason, fault_report_id, xmax = 0 as is_new
    )
    insert into outbox (event_type, correlation_id, subject, payload)
    select 'node.slot_quarantined', gen_random_uuid(), 'nodes/' || b.node_id,
           jsonb_build_object('node_id', b.node_id, 'slot', b.slot_index, 'reason', b.reason, 'source', 'fault_report',
                              'report_id', b.fault_report_id)
    from begun b where b.is_new order by b.slot_index;
    perform keep_slots_v2(reported);
end $$;
