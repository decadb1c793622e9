-- Judges and applies a list of transactions, in its order within each namespace, and answers in its order, each with
-- `outcome`: committed, not_committed (body, event_id), with which everything is written, the operation included;
-- existing (status, body, fingerprint, event_id): its key was used before; version_in_future (head): it names a version
-- that no response has contained; full (keys, bytes): the namespace may exceed its bounds, so the caller repeats it alone;
-- tenant: the tenant is deleted.
-- `head` is a version that is older than whatever this writes. Raises BL001 as above, BK001 where a bound of a namespace is
-- passed, 40001 where a key was used meanwhile, and BO001 where there is no room for another operation.
create or replace function kv_commit(p_items jsonb, out head bigint, out answers jsonb) language plpgsql set enable_seqscan = off as $$
declare
    nil_id  constant uuid := '00000000-0000-0000-0000-000000000000';
    leader  text;
    item    record;
    space   record;
    result    jsonb;
    results   jsonb[] := array_fill(null::jsonb, array[jsonb_array_length(p_items)]);
    missed  integer[];
    event   uuid;
    mark_   bigint;
    change  record;
begin
    perform kv_lock_namespaces(p_items);
    select h.version, h.leader_id into head, leader from log_head h;
    perform require_accepted_leader(leader);

    for item in
        select * from rows from (jsonb_to_recordset(p_items) as (scope uuid, key text, fingerprint text, request_id text,
                correlation_id uuid, namespace uuid, leader_id text, version_max bigint, preconditions jsonb, conflicts jsonb,
                ranges jsonb, puts jsonb, put_bytes bigint, payload jsonb, keys_max bigint, bytes_max bigint, alone boolean))
            with ordinality as i(scope, key, fingerprint, request_id, correlation_id, namespace, leader_id, version_max,
                preconditions, conflicts, ranges, puts, put_bytes, payload, keys_max, bytes_max, alone, n)
        order by i.namespace, i.n
    loop
        result := kv_told_before(item.scope, item.key);
        if result is null and item.version_max > head then
            result := jsonb_build_object('outcome', 'version_in_future', 'head', head);
        elsif result is null and exists (select from tenants t where t.id = item.namespace and t.state = 'deleted') then
            -- `delete_tenant` waits for the lock of the namespace, or this waited for it.
            result := '{"outcome": "tenant"}';
        end if;
        if result is null then
            select * into space from kv_namespaces n where n.id = item.namespace;
            event := uuidv7();
            if item.leader_id is not null and item.leader_id <> leader then
                missed := '{}';
            elsif jsonb_array_length(item.preconditions) > 0 then
                missed := nullif(kv_conflicts(item.namespace, space.last_mark, leader, item.preconditions), '{}');
            else
                missed := null;
            end if;
            if missed is not null then
                insert into outbox (event_id, event_type, correlation_id, tenant_id, subject, operation_key, request_id, payload)
                values (event, 'operation.refused', item.correlation_id, nullif(item.namespace, nil_id),
                    'operations/' || md5(item.scope || ' ' || item.key), item.key, item.request_id,
                    jsonb_build_object('code', 'not_committed', 'status', 200, 'reason', null,
                                       'judged_at', rfc3339(clock_timestamp())));
                result := jsonb_build_object('outcome', 'not_committed', 'event_id', event, 'body', jsonb_build_object(
                    'status', 'not_committed', 'request_id', item.key, 'conflicts',
                    (select coalesce(jsonb_agg(item.conflicts -> m order by m), '[]') from unnest(missed) m)));
            elsif not item.alone and (space.keys + jsonb_array_length(item.puts) > item.keys_max
                                      or space.bytes + item.put_bytes > item.bytes_max) then
                result := '{"outcome": "full"}';
            else
                insert into outbox (event_id, event_type, correlation_id, tenant_id, subject, operation_key, request_id, payload)
                values (event, 'transaction', item.correlation_id, nullif(item.namespace, nil_id),
                    'namespaces/' || item.namespace, item.key, item.request_id,
                    item.payload || jsonb_build_object('judged_at', rfc3339(clock_timestamp())))
                returning id into mark_;
                select * into change from kv_apply(item.namespace, mark_, event, item.ranges, item.puts);
                update kv_namespaces n set keys = n.keys + change.keys, bytes = n.bytes + change.bytes, last_mark = mark_
                where n.id = item.namespace;
                -- What only takes away is never refused.
                if change.keys > 0 and space.keys + change.keys > item.keys_max
                   or change.bytes > 0 and space.bytes + change.bytes > item.bytes_max then
                    raise exception 'the namespace is full' using errcode = 'BK001';
                end if;
                result := jsonb_build_object('outcome', 'committed', 'event_id', event, 'body', jsonb_build_object(
                    'status', 'committed', 'request_id', item.key, 'conflicts', '[]'::jsonb));
            end if;
        end if;
        results[item.n] := result;
    end loop;

    perform kv_store_operations(p_items, results);
    answers := to_jsonb(results);
end $$;
