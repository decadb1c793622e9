-- Cancel a reservation under an operation key in one call, so that its nodes are locked for the call alone. A hold past its
-- deadline, by the clock after the locks, expires instead. Return `outcome`:
--   ok, noop      status, body; everything is written, the operation included
--   existing, in_progress   as `hold_once` does
--   missing, holder, state (with state); again: its claims moved meanwhile. These leave nothing behind.
-- `p_actor`: kind and, of an operator, id.
create or replace function cancel_once(
    p_scope uuid, p_key text, p_fingerprint bytea, p_retire_seconds float8, p_tenant uuid, p_id uuid, p_holder text,
    p_actor_kind text, p_actor_id text, p_request_id text, p_retention_seconds float8
) returns jsonb language plpgsql set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
    subject record;
    overdue boolean;
    done    text := 'noop';
    answer  jsonb;
    event   uuid;
begin
    answer := reserve_key(p_scope, p_key, p_fingerprint, true, p_retire_seconds);
    if answer is not null then
        return answer;
    end if;
    select * into subject from lock_reservation(p_id, p_tenant);
    answer := case
        when subject.id is null then '{"outcome": "missing"}'
        when subject.moved then '{"outcome": "again"}'
        when subject.holder_id <> p_holder then '{"outcome": "holder"}'
        when subject.state not in ('hold', 'confirmed', 'cancelled', 'expired')
        then jsonb_build_object('outcome', 'state', 'state', subject.state)
    end;
    if answer is not null then
        delete from operations where scope = p_scope and key = p_key and status is null;
        return answer;
    end if;
    if subject.state in ('hold', 'confirmed') then
        overdue := subject.state = 'hold' and subject.expires_at <= subject.clock;
        done := case when overdue then 'noop' else 'ok' end;
        perform end_reservation(
            p_id, subject.state, subject.row_version, case when overdue then 'expired' else 'cancelled' end,
            case when overdue then 'reservation.expired' else 'reservation.cancelled' end,
            jsonb_build_object('actor_kind', p_actor_kind)
                || case when overdue then jsonb_build_object('deadline', rfc3339(subject.expires_at)) else '{}' end
                || case when p_actor_id is not null then jsonb_build_object('actor_id', p_actor_id) else '{}' end,
            subject.clock, p_retention_seconds, p_key, p_request_id);
    end if;
    select jsonb_build_object('outcome', done, 'status', 200, 'body', reservation_answer(r, done)::text), r.ended_event
    into answer, event from reservations r where r.id = p_id;
    update operations set status = 200, code = done, body = answer ->> 'body', subject_id = p_id, event_id = event
    where scope = p_scope and key = p_key;
    if done = 'noop' then
        perform tell_committed_v2(p_scope, p_key, 200, done, p_request_id, null, null);
    end if;
    return answer;
end $$;
