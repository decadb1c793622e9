-- The body of a create's first response, as long as the row exists.
create or replace function creation_body(p_row allocations) returns json language sql stable as $$
    select json_build_object('allocation_id', p_row.id, 'status', 'requested', 'sku', p_row.sku, 'shape', p_row.shape,
        'gpus', p_row.gpus, 'region', p_row.region, 'image', p_row.image, 'name', p_row.name, 'labels', p_row.labels,
        'reservation_id', p_row.reservation_id,
        'ends_at', rfc3339(p_row.ends_at),
        'correlation_id', p_row.correlation_id,
        'requested_at', rfc3339(p_row.requested_at))
$$;
