-- Turn one claim of a reservation over to an allocation under an operation key, in one call, so that its nodes are locked for the
-- call alone. Return `outcome`:
--   created       status, body; everything is written, the operation included; `last`: the reservation is consumed
--   refused       status, body; the hold expired, or the window was over: the reservation ended, and the refusal is stored
--   existing, in_progress   as `confirm_reservations` does
--   missing, holder, state (with state), early (state, starts_at), no_claim, stopped (reason)
--   not_admitted  refusal: the place of the refusal that the claim's admission brought
--   again         its claims moved meanwhile, or none of the admissions is of the claim's units
--   stale, tenant, depleted, ssh_key   as `turn_over_claim` does
-- All but `created` and `refused` leave nothing behind. `p_item`: the operation, the request, and what `turn_over_claim` takes.
-- `p_admissions`: for each kind of units that the reservation holds (`units`), SKU and image that the catalogue allows, with
-- their row versions, or the place of a `refusal`. `p_refusals`: the problem documents of `refused`, by state.
create or replace function consume_reservation(p_item jsonb, p_admissions jsonb, p_refusals jsonb) returns jsonb
language plpgsql set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
    item    record;
    subject record;
    judged  record;
    answer  jsonb;
    event   uuid;
begin
    select * into item from jsonb_to_record(p_item) as i(
        scope uuid, key text, fingerprint text, retire_seconds float8, tenant_id uuid, reservation_id uuid, holder_id text,
        request_id text, actor_kind text, retention_seconds float8);
    answer := reserve_key(item.scope, item.key, decode(item.fingerprint, 'hex'), false, item.retire_seconds);
    if answer is not null then
        return answer;
    end if;
    select * into subject from lock_reservation(item.reservation_id, item.tenant_id);
    judged := judge_consume(subject, item.holder_id, p_admissions);
    answer := judged.answer;
    if answer ->> 'outcome' = 'ended' then
        return end_refusing(to_jsonb(subject), answer ->> 'state', p_refusals -> (answer ->> 'state'), p_item);
    elsif answer is null then
        answer := turn_over_claim(p_item || judged.admitted || judged.claim || jsonb_build_object(
            'own_key', item.key, 'judged_at', subject.clock, 'ends_at', subject.ends_at));
    end if;
    if answer ->> 'outcome' <> 'created' then
        delete from operations where scope = item.scope and key = item.key and status is null;
        return answer;
    end if;
    event := answer ->> 'event_id';
    if (answer ->> 'last')::boolean then
        event := consume_with_last_claim(subject.id, subject.state, subject.row_version, item.actor_kind, subject.clock,
                                         item.retention_seconds, item.key, item.request_id);
    end if;
    update operations set status = 201, code = 'ok', body = answer ->> 'body', subject_id = (answer ->> 'allocation_id')::uuid,
                          event_id = event
    where scope = item.scope and key = item.key;
    return answer || '{"status": 201}';
end $$;
