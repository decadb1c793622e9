-- The bare rows of one transaction of one key as one statement: operation, event, key and the namespace's row, on the same
-- schema and with the same values that a commit writes, but with nothing to judge, and without sequencing.
\set place random(1, :namespaces)
with named as materialized (
    select (array(select id from tenants order by id limit :namespaces))[:place] as namespace, nextval('bench_numbers') as number,
           uuidv7() as event_id, clock_timestamp() as stamp
), locked as materialized (
    update kv_namespaces n set keys = n.keys + 1, bytes = n.bytes + 112, last_mark = n.last_mark + 1
    from named where n.id = named.namespace
    returning n.id
), event as (
    insert into outbox (event_id, event_type, correlation_id, tenant_id, subject, operation_key, request_id, payload)
    select event_id, 'transaction', event_id, namespace, 'namespaces/' || namespace, 'bench-' || number, event_id::text,
           jsonb_build_object('judged_at', stamp, 'operations', jsonb_build_array(jsonb_build_object('type', 'write',
               'key', encode(convert_to('bench-' || number, 'UTF8'), 'base64'), 'value', repeat('v', 136))))
    from named, locked
    returning id
), key as (
    insert into kv_keys (namespace, key, value, mark, event_id)
    select namespace, convert_to('bench-' || number, 'UTF8'), convert_to(repeat('v', 100), 'UTF8'), event.id, event_id
    from named, event
)
insert into operations (scope, key, fingerprint, status, code, body, subject_id, retire_after)
select namespace, 'bench-' || number, decode(repeat('ab', 32), 'hex'), 200, 'committed',
       jsonb_build_object('status', 'committed', 'request_id', 'bench-' || number, 'conflicts', '[]'::jsonb)::text, event_id,
       stamp + interval '1 day'
from named;
