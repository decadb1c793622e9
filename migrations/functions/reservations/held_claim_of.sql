-- The claim of a reservation to turn over next: free units first, then occupied units, then units out of service; no row if no
-- claim on a node is left. `stopped`: why the node or a slot cannot be used now, if so. `offset 0`: as in `lock_reservation`.
create or replace function held_claim_of(p_id uuid) returns table (
    id bigint, node_id uuid, region text, gpu_model text, shape text, slot_count smallint, gpus integer, stopped text
) language sql stable as $$
select c.id, c.node_id, n.region, n.gpu_model, n.shape, n.slot_count,
       (select sum(upper(part) - lower(part))::integer from unnest(c.units) part) as gpus,
       case when n.state <> 'active' then 'the node is ' || n.state
            when not n.online then 'the node is offline'
            else (select min(coalesce(s.reason, 'a slot is out of service')) from slots s
                  where s.node_id = n.id and s.state = 'out_of_service' and c.units @> s.unit) end as stopped
from (select id, node_id, units, owner_kind, closed_at from claims where owner_id = p_id offset 0) c
join nodes n on n.id = c.node_id
where c.owner_kind = 'reservation' and c.closed_at is null
order by 8 is not null, exists (select from claims o where o.node_id = c.node_id and o.closed_at is null and o.occupied
                                and o.units && c.units), c.id
limit 1
$$;
