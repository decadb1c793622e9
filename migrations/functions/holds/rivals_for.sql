-- Owners of claims on these units in that window, or of claims that may still occupy them although it begins now. `overdue`: a
-- hold past its deadline, which a transaction that needs its units may end.
create or replace function rivals_for(p_nodes uuid[], p_resources text[], p_units int8multirange, p_window tstzrange, p_now timestamptz)
returns table (owner_kind text, owner_id uuid, tenant_id uuid, overdue boolean) language sql stable as $$
    select distinct c.owner_kind, c.owner_id, c.tenant_id, coalesce(r.state = 'hold' and r.expires_at <= p_now, false)
    from (
        select * from claims where closed_at is null and node_id = any (p_nodes)
        union all
        select * from claims where closed_at is null and resource_id = any (p_resources)
    ) c
    left join reservation_states r on c.owner_kind = 'reservation' and r.id = c.owner_id
    where c.units && p_units and (c.booked and c.during && p_window or c.occupied and lower(p_window) <= p_now)
$$;
