-- Refuse a transaction of a locked namespace whose preconditions `p_missed` (places in its list) do not hold, with an event;
-- return its result (`kv_commit`), or `full`. Raises BK001 if it is alone and would exceed the quota of the log.
-- Runs under the planner settings of `kv_commit`: setting them again costs more than the call.
create or replace function kv_refuse(p_item record, p_space record, p_missed integer[]) returns jsonb language plpgsql as $$
declare
    event constant uuid := uuidv7();
    body  constant jsonb := jsonb_build_object('status', 'not_committed', 'request_id', p_item.key, 'conflicts',
        (select coalesce(jsonb_agg(p_item.conflicts -> m order by m), '[]') from unnest(p_missed) m));
    charge record;
begin
    select * into charge from kv_charge(p_item, p_space, octet_length(body::text));
    if charge.total is null then
        return '{"outcome": "full"}';
    end if;
    update kv_namespaces n set log_day = charge.day, log_bytes = charge.total where n.id = p_item.namespace;
    insert into outbox (event_id, event_type, correlation_id, tenant_id, subject, operation_key, request_id, payload)
    values (event, 'operation.refused', p_item.correlation_id,
        nullif(p_item.namespace, '00000000-0000-0000-0000-000000000000'),
        'operations/' || md5(p_item.scope || ' ' || p_item.key), p_item.key, p_item.request_id,
        jsonb_build_object('code', 'not_committed', 'status', 200, 'reason', null,
                           'judged_at', rfc3339(clock_timestamp())));
    return jsonb_build_object('outcome', 'not_committed', 'event_id', event, 'body', body);
end $$;
