-- A reservation as clients read it. The versions are those of its events in the log; null: not sequenced yet.
create or replace function reservation_body(r reservations, p_created bigint, p_released bigint, p_result text)
returns json language sql stable as $$
    select json_build_object('reservation_id', r.id, 'tenant_id', r.tenant_id, 'holder_id', r.holder_id, 'status', r.state,
        'result', p_result, 'resources', to_json(r.resources), 'sku', r.sku, 'gpus', r.gpus, 'region', r.region,
        'count', case when r.sku is not null then r.quantity end, 'gpus_held', r.gpus_held,
        'starts_at', rfc3339(r.starts_at), 'ends_at', rfc3339(r.ends_at), 'expires_at', rfc3339(r.expires_at),
        'held_at', rfc3339(r.held_at), 'confirmed_at', rfc3339(r.confirmed_at), 'ended_at', rfc3339(r.ended_at),
        'retire_after', rfc3339(r.retire_after), 'created_version', p_created, 'released_version', p_released,
        'waits', case when r.waits_for is not null then json_build_object(
            'for', r.waits_for, 'since', rfc3339(r.waits_since), 'until', rfc3339(r.waits_until)) end,
        'failure', case when r.failure_code is not null then json_build_object(
            'code', r.failure_code, 'detail', r.failure_detail) end,
        'allocation', r.template - 'user_data', 'name', r.name, 'correlation_id', r.correlation_id, 'row_version', r.row_version)
$$;
