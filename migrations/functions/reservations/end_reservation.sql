-- Advance a reservation to a final state, close its open claims and return its tenant's quota, in one call: null if it is not
-- as the caller locked it. The caller has locked its nodes, resources and itself; the quota is locked here, last.
create or replace function end_reservation(
    p_id uuid, p_from text, p_row_version bigint, p_to text, p_event_type text, p_payload jsonb, p_judged_at timestamptz,
    p_retention_seconds float8, p_operation_key text, p_request_id text
) returns bigint language plpgsql set enable_seqscan = off as $$
declare
    version constant bigint := advance_reservation(p_id, p_from, p_row_version, p_to, p_event_type, p_payload, p_judged_at,
                                                   p_retention_seconds, p_operation_key, p_request_id);
begin
    if version is not null then
        perform close_reservation_claims(p_id);
        update tenant_quotas q set gpus_used = q.gpus_used - r.gpus_held, row_version = q.row_version + 1
        from reservations r where r.id = p_id and r.gpus_held > 0 and q.tenant_id = r.tenant_id;
    end if;
    return version;
end $$;
