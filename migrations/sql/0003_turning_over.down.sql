drop function move_claim(bigint, uuid, bigint, text, timestamptz);
drop function claim_place(claims);
drop function names_of_units(uuid, text, int8multirange);
create or replace function standing_creation(p_scope uuid, p_key text)
returns table (fingerprint bytea, status smallint, body text, subject_id uuid) language sql stable as $$
    select a.operation_fingerprint, 201::smallint, creation_body(a)::text, a.id
    from allocations a where a.tenant_id = p_scope and a.operation_key = p_key
    union all
    select r.operation_fingerprint, 201::smallint, first_reservation_body(r)::text, r.id
    from reservations r where r.tenant_id = p_scope and r.operation_key = p_key
$$;
drop function as_held(reservations);
drop function turn_over_claim(jsonb);
drop function start_waiting(uuid, float8);
drop function requested_payload(uuid, bigint, boolean);
create or replace function creation_body(p_row allocations) returns json language sql stable as $$
    select json_build_object('allocation_id', p_row.id, 'status', 'requested', 'sku', p_row.sku, 'shape', p_row.shape,
        'gpus', p_row.gpus, 'region', p_row.region, 'image', p_row.image, 'name', p_row.name, 'labels', p_row.labels,
        'correlation_id', p_row.correlation_id,
        'requested_at', to_char(p_row.requested_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
$$;
