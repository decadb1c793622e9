-- Decide on a consume under the locks of `lock_reservation`, by the clock after them (`subject`). `answer`: an outcome of
-- `consume_reservation` that turns nothing over; null: turn `claim` over as `admitted`.
-- `p_admissions`: as `consume_reservation` takes them.
create or replace function judge_consume(
    subject record, p_holder text, p_admissions jsonb, out answer jsonb, out claim jsonb, out admitted jsonb
) language plpgsql set enable_seqscan = off as $$
declare
    held record;
begin
    answer := case
        when subject.id is null then '{"outcome": "missing"}'
        when subject.moved then '{"outcome": "again"}'
        when subject.holder_id <> p_holder then '{"outcome": "holder"}'
        when subject.state = 'hold' and subject.expires_at <= subject.clock then '{"outcome": "ended", "state": "expired"}'
        when subject.state = 'confirmed' and subject.ends_at <= subject.clock then '{"outcome": "ended", "state": "released"}'
        when subject.state not in ('hold', 'confirmed') then jsonb_build_object('outcome', 'state', 'state', subject.state)
        when subject.starts_at > subject.clock
        then jsonb_build_object('outcome', 'early', 'state', subject.state, 'starts_at', rfc3339(subject.starts_at))
    end;
    if answer is not null then
        return;
    end if;
    select * into held from held_claim_of(subject.id);
    if not found then
        answer := '{"outcome": "no_claim"}';
        return;
    end if;
    claim := jsonb_build_object('claim_id', held.id, 'gpus', held.gpus, 'region', held.region);
    select a.admission into admitted from jsonb_array_elements(p_admissions) a(admission)
    where a.admission -> 'units' = jsonb_build_object('gpus', held.gpus, 'region', held.region, 'gpu_model', held.gpu_model,
                                                      'shape', held.shape, 'slot_count', held.slot_count);
    answer := case
        when admitted is null then '{"outcome": "again"}'
        when admitted ? 'refusal' then jsonb_build_object('outcome', 'not_admitted', 'refusal', admitted -> 'refusal')
        when held.stopped is not null then jsonb_build_object('outcome', 'stopped', 'reason', held.stopped)
    end;
end $$;
