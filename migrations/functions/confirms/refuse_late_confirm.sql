-- Expire a hold whose confirm came too late, under its operation key, and store the refusal, in one call: its claims end, so its
-- nodes are locked for this call. Return `outcome`:
--   refused       status, body; the hold is expired, by this call or before it, and the refusal is stored
--   existing, in_progress   as `confirm_reservations` does
--   missing; again: its claims moved meanwhile, or the clock went back to before its deadline. These leave nothing behind.
-- `p_item`: an item of `confirm_reservations`, and what `end_refusing` takes. `p_refusals`: the problem document by the state that
-- the reservation has then.
create or replace function refuse_late_confirm(p_item jsonb, p_refusals jsonb) returns jsonb
language plpgsql set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
    item    record;
    subject record;
    answer  jsonb;
    ends_as text;
begin
    select * into strict item from confirm_items(jsonb_build_array(p_item));
    answer := reserve_key(item.scope, item.key, decode(item.fingerprint, 'hex'), true, item.retire_seconds);
    if answer is not null then
        return answer;
    end if;
    select * into subject from lock_reservation(item.id, item.tenant_id);
    if subject.id is null or subject.moved or subject.state = 'hold' and subject.expires_at > subject.clock then
        delete from operations where scope = item.scope and key = item.key and status is null;
        return jsonb_build_object('outcome', case when subject.id is null then 'missing' else 'again' end);
    end if;
    -- Another transaction may have ended it first. The deadline had passed all the same, so no confirm can have succeeded since.
    ends_as := case subject.state when 'hold' then 'expired' else subject.state end;
    return end_refusing(to_jsonb(subject), ends_as, p_refusals -> ends_as, p_item);
end $$;
