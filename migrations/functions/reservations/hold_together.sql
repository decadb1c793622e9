-- Holds for a list, each as if it were alone, in the order of their keys, and answers them in the order of the list. None of
-- them waits for a rival's lock except for its key's, so lists cannot wait for each other in a circle: one that would have to
-- wait is answered `again` and is for its caller to repeat alone. Quotas come last, all together. Raises what `hold_once` raises, for the list as a whole.
create or replace function hold_together(p_items jsonb) returns jsonb language plpgsql as $$
declare
    item     record;
    answer   jsonb;
    answers  jsonb[] := array_fill(null::jsonb, array[jsonb_array_length(p_items)]);
    tenants_ uuid[] := '{}';
    changes  integer[] := '{}';
begin
    for item in select i.one, i.n from jsonb_array_elements(p_items) with ordinality i(one, n)
                order by i.one ->> 'tenant_id', i.one ->> 'key' collate "C" loop
        answer := hold_once(item.one || '{"together": true}');
        answers[item.n] := answer;
        if answer ->> 'outcome' = 'held' then
            tenants_ := tenants_ || array(select jsonb_array_elements_text(answer -> 'tenants')::uuid);
            changes := changes || array(select jsonb_array_elements_text(answer -> 'changes')::integer);
        end if;
    end loop;
    perform change_quotas(tenants_, changes);
    return to_jsonb(answers);
end $$;
