-- Confirms for a list, each as if it were alone; those with an obstacle in the order of their keys, after the
-- others. Answers in the order of the list. As in `hold_together`, one that would have to wait for a rival's lock is answered
-- `again`. One alone is cheaper by itself.
create or replace function confirm_together(p_items jsonb) returns jsonb language plpgsql as $$
declare
    item    record;
    answers jsonb[] := array_fill(null::jsonb, array[jsonb_array_length(p_items)]);
begin
    if jsonb_array_length(p_items) > 1 then
        answers := confirm_plain(p_items);
    end if;
    for item in select i.* from confirms_of(p_items) i where answers[i.n] is null order by i.tenant_id, i.key collate "C" loop
        answers[item.n] := confirm_once(item.tenant_id, item.key, decode(item.fingerprint, 'hex'), item.retention_seconds,
                                        item.id, item.holder_id, item.request_id, true);
    end loop;
    return to_jsonb(answers);
end $$;
