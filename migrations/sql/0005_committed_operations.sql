-- Every stored operation has a place in the log (DESIGN §7): one that none of its transaction's events names, and one that
-- found nothing left to do, leaves this event, which says nothing but the outcome. An operator's is no tenant's.
create function tell_committed(p_scope uuid, p_key text, p_status integer, p_code text, p_request_id text)
returns uuid language plpgsql as $$
declare
    stamp constant timestamptz := clock_timestamp();
    event uuid;
begin
    insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, operation_key, request_id, payload)
    values ('operation.committed', stamp, gen_random_uuid(), (select t.id from tenants t where t.id = p_scope),
            'operations/' || md5(p_scope || ' ' || p_key), p_key, p_request_id,
            jsonb_build_object('code', p_code, 'status', p_status, 'judged_at', rfc3339(stamp)))
    returning event_id into event;
    return event;
end $$;

-- What is remembered from before has its place from now on.
select tell_committed(o.scope, o.key, o.status, o.code, null)
from operations o left join tenants t on t.id = o.scope
where o.status < 400 and not exists (
    select from (select operation_key, tenant_id from log union all select operation_key, tenant_id from outbox) e
    where e.operation_key = o.key and (t.id is null or e.tenant_id = o.scope)
)
order by o.created_at;
