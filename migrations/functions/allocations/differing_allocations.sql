-- The active allocations of a node whose recorded state differs from a complete inventory that was gathered after `p_after`.
-- `p_held`: the allocations in that inventory. No row if the node is healthy and holds what it should.
-- An inventory that was gathered before an allocation became active, or before its last verb ended, proves nothing about it.
create or replace function differing_allocations(p_node uuid, p_held jsonb, p_after timestamptz) returns table (
    id uuid, health text, health_cause text, fence bigint, is_named boolean, reported text, first_boot text
) language sql stable as $$
select a.id, a.health, a.health_cause, coalesce(c.inherited_fence, c.fence), h.allocation_id is not null, h.state, a.first_boot
from allocations a
left join jsonb_to_recordset(p_held) as h(allocation_id uuid, state text, first_boot jsonb) on h.allocation_id = a.id
join claims c on c.id = a.claim_id
where a.node_id = p_node and a.state = 'active' and a.guest_verb is null
  and greatest(a.active_at, a.waits_since) < p_after
  and (a.health is not null or h.allocation_id is null or h.state in ('down', 'ended', 'unreachable')
       or (coalesce(a.first_boot, 'pending') = 'pending' and h.first_boot ->> 'status' is not null
           and h.first_boot ->> 'status' is distinct from a.first_boot))
$$;
