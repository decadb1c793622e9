-- The event payload of a requested allocation; `p_turned_over`: this event turns a reservation's claim over to it.
create or replace function requested_payload(p_id uuid, p_fence bigint, p_turned_over boolean) returns jsonb language sql stable as $$
    select jsonb_build_object('allocation_id', a.id, 'sku', a.sku, 'shape', a.shape, 'gpus', a.gpus, 'region', a.region,
        'node_id', a.node_id, 'fence', p_fence, 'reservation_id', a.reservation_id, 'turned_over', p_turned_over,
        'units', (select jsonb_agg(jsonb_build_array(lower(part), upper(part)) order by part) from unnest(c.units) part),
        'ends_at', rfc3339(a.ends_at))
    from allocations a join claims c on c.id = a.claim_id where a.id = p_id
$$;
