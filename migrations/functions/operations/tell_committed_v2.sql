-- Write `operation.committed` for an operation that no other event of its transaction names, so that each stored operation has a
-- version in the log (DESIGN §7), and return the id of the event. `p_action`, `p_object`: as the audit names them, null if unknown;
-- after a restore the event is all that is left of an operation that it lost. `p_scope` of an operator: an event of no tenant.
create or replace function tell_committed_v2(
    p_scope uuid, p_key text, p_status integer, p_code text, p_request_id text, p_action text, p_object text
) returns uuid language plpgsql as $$
declare
    stamp constant timestamptz := clock_timestamp();
    event uuid;
begin
    insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, operation_key, request_id, payload)
    values ('operation.committed', stamp, gen_random_uuid(), (select t.id from tenants t where t.id = p_scope),
            'operations/' || md5(p_scope || ' ' || p_key), p_key, p_request_id,
            jsonb_strip_nulls(jsonb_build_object('code', p_code, 'status', p_status, 'judged_at', rfc3339(stamp),
                                                 'action', p_action, 'object', p_object)))
    returning event_id into event;
    update operations set event_id = event where scope = p_scope and key = p_key;
    return event;
end $$;
