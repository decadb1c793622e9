-- Moves a reservation's claim to other slots, under a new fence; false if they are not free in all of its window. The
-- caller has locked both nodes and the reservation, and judged by the clock `p_judged_at` that it is to be moved.
create or replace function move_claim(p_claim bigint, p_node uuid, p_mask bigint, p_reason text, p_judged_at timestamptz)
returns boolean language plpgsql set enable_seqscan = off as $$
declare
    old   claims;
    moved claims;
    r     reservations;
    node_ nodes;
begin
    select * into strict old from claims where id = p_claim and owner_kind = 'reservation' and closed_at is null;
    select * into strict node_ from nodes where id = p_node;
    if node_.state <> 'active' or not node_.online
       or exists (select from rivals_for(array[p_node], '{}', mask_to_units(node_.unit_base, p_mask), old.during, p_judged_at))
       or exists (select from slots s where s.node_id = p_node and s.state = 'out_of_service'
                  and p_mask >> s.slot_index & 1 = 1) then
        return false;
    end if;
    perform bump_row_versions(old.node_id, null);
    update claims set node_id = p_node, units = mask_to_units(node_.unit_base, p_mask), fence = nextval('fences'),
                      moved_at = p_judged_at
    where id = p_claim returning * into moved;
    perform refresh_node_fit(old.node_id);
    if p_node <> old.node_id then
        perform refresh_node_fit(p_node);
    end if;
    update reservations set
        row_version = row_version + 1,
        resources = array(select name from unnest(resources) with ordinality as n(name, place)
                          where name <> all (names_of_units(old.node_id, node_.shape, old.units)) order by place)
                    || names_of_units(p_node, node_.shape, moved.units)
    where id = old.owner_id returning * into r;
    insert into outbox (event_type, correlation_id, tenant_id, subject, payload)
    values ('reservation.moved', r.correlation_id, r.tenant_id, 'reservations/' || r.id,
        jsonb_build_object('reservation_id', r.id, 'holder_id', r.holder_id, 'judged_at', rfc3339(p_judged_at),
            'reason', p_reason, 'from', claim_place(old), 'to', claim_place(moved)));
    return true;
end $$;
