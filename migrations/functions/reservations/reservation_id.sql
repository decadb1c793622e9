create or replace function reservation_id(p_shard bigint, p_position bigint) returns uuid language sql immutable strict as $$
    select (lpad(to_hex(p_shard), 16, '0') || lpad(to_hex(p_position), 16, '0'))::uuid
$$;
