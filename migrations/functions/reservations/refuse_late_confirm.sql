-- Expire a hold whose confirm came too late, under its operation key, and store the refusal, in one call: its claims end, so its
-- nodes are locked for this call. Return `outcome`:
--   refused       status, body; the hold is expired, by this call or before it, and the refusal is stored
--   existing, in_progress   as `confirm_reservations` does
--   missing; again: its claims moved meanwhile. These leave nothing behind.
-- `p_item`: an item of `confirm_reservations`. `p_refusals`: the problem document for each state that the reservation may have.
-- `p_actor_kind`, `p_tenant`: of the caller; an operator has no tenant.
create or replace function refuse_late_confirm(
    p_item jsonb, p_actor_kind text, p_tenant uuid, p_refusals jsonb, p_retention_seconds float8
) returns jsonb language plpgsql set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
    item    record;
    subject record;
    answer  jsonb;
begin
    select * into strict item from confirm_items(jsonb_build_array(p_item));
    answer := reserve_key(item.scope, item.key, decode(item.fingerprint, 'hex'), true, item.retire_seconds);
    if answer is not null then
        return answer;
    end if;
    select * into subject from lock_reservation(item.id, item.tenant_id);
    if subject.id is null or subject.moved then
        delete from operations where scope = item.scope and key = item.key;
        return jsonb_build_object('outcome', case when subject.id is null then 'missing' else 'again' end);
    end if;
    if subject.state = 'hold' and subject.expires_at <= subject.clock then
        select e.state into subject.state from end_reservation(
            subject.id, 'hold', subject.row_version, 'expired', 'reservation.expired',
            jsonb_build_object('actor_kind', p_actor_kind, 'deadline', rfc3339(subject.expires_at)), subject.clock,
            p_retention_seconds, item.key, item.request_id) e;
    end if;
    -- Another transaction may have ended it first. The deadline had passed all the same, so no confirm can have succeeded since.
    answer := p_refusals -> subject.state;
    return jsonb_build_object(
        'outcome', 'refused', 'status', answer -> 'status',
        'body', conclude_refused(item.scope, item.key, p_tenant, answer, item.id, item.request_id));
end $$;
