-- Awaits no wipe of a node without an agent any more, as an operator has found that its active allocation is still on its machine.
-- Returns 'kept', or why nothing was changed: 'not_awaited', 'has_agent', 'silent' (its BMC has not answered since the restore), 'other'
-- (not exactly this active allocation is on it, or it was released in the lost interval).
create or replace function restore_keep_node(p_node uuid, p_allocation uuid) returns text
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    closed timestamptz;
begin
    perform from nodes n where n.id = p_node for no key update;
    select r.closed_at into closed from awaited_inventories w join restores r on r.epoch = w.epoch where w.node_id = p_node;
    if closed is null then
        return 'not_awaited';
    end if;
    perform from nodes n where n.id = p_node and n.driver = 'redfish' and n.enrolled_at is null;
    if not found then
        return 'has_agent';
    end if;
    perform from nodes n join node_bmcs b on b.node_id = n.id where n.id = p_node and n.online and b.answered_at > closed;
    if not found then
        return 'silent';
    end if;
    perform from claims c left join allocations a on a.claim_id = c.id
    where c.node_id = p_node and c.closed_at is null and c.occupied
    having count(*) = 1 and bool_and(coalesce(a.id = p_allocation and a.state = 'active' and a.active_at < closed and not exists (
        select from restore_replays w where w.kind = 'release' and w.subject_id = a.id and w.done_at is null), false));
    if not found then
        return 'other';
    end if;
    delete from awaited_inventories where node_id = p_node;
    perform keep_slots_v2(p_node);
    insert into audit (principal_kind, principal_id, action, subject, detail)
    values ('system', 'berth restore', 'restore.keep_node', 'nodes/' || p_node, jsonb_build_object('allocation_id', p_allocation));
    return 'kept';
end $$;
