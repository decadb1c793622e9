-- `advance_reservations` for one reservation: its new row version. Null if the reservation is not as the caller locked it.
-- `p_judged_at` is the clock by which the caller judged, after its locks: a replay of the log judges by it too.
create or replace function advance_reservation(
    p_id uuid, p_from text, p_row_version bigint, p_to text, p_event_type text, p_payload jsonb, p_judged_at timestamptz,
    p_retention_seconds float8, p_operation_key text, p_request_id text
) returns bigint language sql as $$
select r.row_version from advance_reservations(array[p_id], p_from, array[p_row_version], p_to, p_event_type, p_payload, p_judged_at,
                                               p_retention_seconds, array[p_operation_key], array[p_request_id]) r
$$;
