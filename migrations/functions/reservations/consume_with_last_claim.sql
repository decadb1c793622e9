-- Make a reservation `consumed`, whose last claim this transaction has turned over, and return its event. The caller has locked
-- it and its nodes. Raises 40001 if it is not as the caller locked it.
create or replace function consume_with_last_claim(
    p_id uuid, p_from text, p_row_version bigint, p_actor_kind text, p_judged_at timestamptz, p_retention_seconds float8,
    p_operation_key text, p_request_id text
) returns uuid language plpgsql set enable_seqscan = off as $$
declare
    event uuid;
begin
    select r.ended_event into event from advance_reservations(
        array[p_id], p_from, array[p_row_version], 'consumed', 'reservation.consumed',
        jsonb_build_object('actor_kind', p_actor_kind, 'allocation_ids', array(
            select a.id from allocations a where a.reservation_id = p_id order by a.id)),
        p_judged_at, p_retention_seconds, array[p_operation_key], array[p_request_id]) r;
    if event is null then
        raise exception 'the reservation changed although it was locked' using errcode = '40001';
    end if;
    return event;
end $$;
