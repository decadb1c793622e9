-- Return `waits_for` and `since` if nothing but cleanup keeps these units from the window: of every claim in the way the right
-- has ended, or its allocation is being released. Null if some owner keeps its right, or no claim is in the way. `since`: when
-- the longest of these waits began. Overdue holds are ignored, as the caller expires them.
-- Runs under the planner settings of `hold_once`: setting them again costs more than the call.
create or replace function cleanup_awaited(
    p_nodes uuid[], p_resources text[], p_units int8multirange, p_window tstzrange, p_now timestamptz
) returns jsonb language sql stable as $$
    select case when bool_and(not c.booked or coalesce(a.state in ('releasing', 'release_failed'), false))
           then jsonb_build_object('waits_for', 'cleanup', 'since',
                                   rfc3339(min(coalesce(a.releasing_at, a.failed_at, c.waits_since)))) end
    from (
        select * from claims where closed_at is null and node_id = any (p_nodes)
        union all
        select * from claims where closed_at is null and resource_id = any (p_resources)
    ) c
    left join allocations a on c.owner_kind = 'allocation' and a.id = c.owner_id
    left join reservation_states r on c.owner_kind = 'reservation' and r.id = c.owner_id
    where c.units && p_units and (c.booked and c.during && p_window or c.occupied and lower(p_window) <= p_now)
      and not coalesce(r.state = 'hold' and r.expires_at <= p_now, false)
$$;
