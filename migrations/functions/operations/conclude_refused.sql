-- Store a refusal under a key that the caller has reserved, beside whatever else its transaction does, with its event. Return
-- the stored body. `p_tenant`: null for an operator's.
create or replace function conclude_refused(
    p_scope uuid, p_key text, p_tenant uuid, p_document jsonb, p_subject uuid, p_request_id text
) returns text language plpgsql as $$
declare
    stamp constant timestamptz := clock_timestamp();
    event constant uuid := uuidv7();
    told  text;
begin
    update operations set
        status = (p_document ->> 'status')::smallint, code = p_document ->> 'code', subject_id = p_subject, event_id = event,
        body = (p_document || jsonb_build_object('server_time', rfc3339(stamp)))::text
    where scope = p_scope and key = p_key
    returning body into strict told;
    insert into outbox (event_id, event_type, occurred_at, correlation_id, tenant_id, subject, operation_key, request_id, payload)
    values (event, 'operation.refused', stamp, gen_random_uuid(), p_tenant, 'operations/' || md5(p_scope || ' ' || p_key), p_key,
            p_request_id, jsonb_build_object('code', p_document ->> 'code', 'status', (p_document ->> 'status')::smallint,
                                             'reason', p_document ->> 'reason', 'judged_at', rfc3339(stamp)));
    return told;
end $$;
