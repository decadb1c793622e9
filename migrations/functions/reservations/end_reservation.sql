-- Advance a reservation to a final state, close its open claims and return its tenant's quota, in one call. Return its new row; no
-- row if it is not as the caller locked it. The caller has locked its nodes, resources and itself; the quota is locked here, last.
create or replace function end_reservation(
    p_id uuid, p_from text, p_row_version bigint, p_to text, p_event_type text, p_payload jsonb, p_judged_at timestamptz,
    p_retention_seconds float8, p_operation_key text, p_request_id text
) returns setof reservations language plpgsql set enable_seqscan = off as $$
declare
    ended reservations;
begin
    select * into ended from advance_reservations(
        array[p_id], p_from, array[p_row_version], p_to, p_event_type, p_payload, p_judged_at, p_retention_seconds,
        array[p_operation_key], array[p_request_id]);
    if found then
        perform close_reservation_claims(p_id);
        update tenant_quotas q set gpus_used = q.gpus_used - ended.gpus_held, row_version = q.row_version + 1
        where ended.gpus_held > 0 and q.tenant_id = ended.tenant_id;
        return next ended;
    end if;
end $$;
