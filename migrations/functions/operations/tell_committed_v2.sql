-- Every stored operation has a place in the log (DESIGN §7): one that none of its transaction's events names, and one that
-- found nothing left to do, leaves this event: its outcome, its action, and the object of it, both as the audit names them (null:
-- not known). They are all that is left of an operation which a restore has lost. An operator's is no tenant's.
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
