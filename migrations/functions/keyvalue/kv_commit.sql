-- Judges and applies a list of transactions, in its order within each namespace, and answers in its order, each with
-- `outcome`: committed, not_committed (body, event_id), with which everything is written, the operation included;
-- existing (status, body, fingerprint, event_id): its key was used before; version_in_future (head): it names a version
-- that no response has contained; full: the namespace may exceed a quota, so the caller repeats it alone; tenant: the tenant
-- is deleted.
-- `head` is a version that is older than whatever this writes. Raises BL001 as above, BK001 where a quota of a namespace is
-- passed, 40001 where a key was used meanwhile, BO001 and BQ002 where there is no room for another operation.
create or replace function kv_commit(p_items jsonb, out head bigint, out answers jsonb) language plpgsql set enable_seqscan = off as $$
declare
    leader  text;
    epoch   text;
    item    record;
    space   record;
    result  jsonb;
    results jsonb[] := array_fill(null::jsonb, array[jsonb_array_length(p_items)]);
    missed  integer[];
begin
    perform kv_lock_namespaces(p_items);
    select h.version, h.leader_id, h.epoch into head, leader, epoch from log_head h;
    perform require_accepted_leader(leader);
    leader := leader || '-' || epoch;

    for item in
        select * from rows from (jsonb_to_recordset(p_items) as (scope uuid, key text, fingerprint text, request_id text,
                correlation_id uuid, namespace uuid, leader_id text, version_max bigint, preconditions jsonb, conflicts jsonb,
                ranges jsonb, puts jsonb, put_bytes bigint, payload jsonb, payload_bytes bigint, keys_max bigint, bytes_max bigint,
                log_bytes_max bigint, alone boolean))
            with ordinality as i(scope, key, fingerprint, request_id, correlation_id, namespace, leader_id, version_max,
                preconditions, conflicts, ranges, puts, put_bytes, payload, payload_bytes, keys_max, bytes_max, log_bytes_max,
                alone, n)
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
            select n.*, q.limits into space from kv_namespaces n left join tenant_quotas q on q.tenant_id = n.id
            where n.id = item.namespace;
            -- Without an epoch: from a response of before revision 0072.
            if item.leader_id is not null and item.leader_id not in (leader, left(leader, -9)) then
                missed := '{}';
            elsif jsonb_array_length(item.preconditions) > 0 then
                missed := nullif(kv_conflicts(item.namespace, space.last_mark, leader, item.preconditions), '{}');
            else
                missed := null;
            end if;
            result := case when missed is null then kv_write(item, space) else kv_refuse(item, space, missed) end;
        end if;
        results[item.n] := result;
    end loop;

    perform kv_store_operations(p_items, results);
    answers := to_jsonb(results);
end $$;
