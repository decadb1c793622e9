-- Write a transaction of a locked namespace, with its event; return its result (`kv_commit`), or `full`.
-- Raises BK001 if it is alone and would exceed a quota: what only takes away never exceeds that of keys and bytes.
-- Runs under the planner settings of `kv_commit`: setting them again costs more than the call.
create or replace function kv_write(p_item record, p_space record) returns jsonb language plpgsql as $$
declare
    event  constant uuid := uuidv7();
    keys_max  constant bigint := coalesce((p_space.limits ->> 'kv_keys')::bigint, p_item.keys_max);
    bytes_max constant bigint := coalesce((p_space.limits ->> 'kv_bytes')::bigint, p_item.bytes_max);
    mark_  bigint;
    charge record;
    change record;
begin
    select * into charge from kv_charge(p_item, p_space, coalesce(p_item.payload_bytes, 0));
    if charge.total is null or not p_item.alone and (p_space.keys + jsonb_array_length(p_item.puts) > keys_max
                                                     or p_space.bytes + p_item.put_bytes > bytes_max) then
        return '{"outcome": "full"}';
    end if;
    insert into outbox (event_id, event_type, correlation_id, tenant_id, subject, operation_key, request_id, payload)
    values (event, 'transaction', p_item.correlation_id, nullif(p_item.namespace, '00000000-0000-0000-0000-000000000000'),
        'namespaces/' || p_item.namespace, p_item.key, p_item.request_id,
        p_item.payload || jsonb_build_object('judged_at', rfc3339(clock_timestamp())))
    returning id into mark_;
    select * into change from kv_apply(p_item.namespace, mark_, event, p_item.ranges, p_item.puts);
    update kv_namespaces n set keys = n.keys + change.keys, bytes = n.bytes + change.bytes, last_mark = mark_,
                               log_day = charge.day, log_bytes = charge.total
    where n.id = p_item.namespace;
    if change.keys > 0 and p_space.keys + change.keys > keys_max then
        perform kv_full(p_item.namespace, 'kv_keys', keys_max, p_space.keys);
    elsif change.bytes > 0 and p_space.bytes + change.bytes > bytes_max then
        perform kv_full(p_item.namespace, 'kv_bytes', bytes_max, p_space.bytes);
    end if;
    return jsonb_build_object('outcome', 'committed', 'event_id', event, 'body', jsonb_build_object(
        'status', 'committed', 'request_id', p_item.key, 'conflicts', '[]'::jsonb));
end $$;
