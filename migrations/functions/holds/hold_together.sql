-- Place a list of holds and return one outcome for each, in input order. Holds that no rival blocks are written in one batch
-- (`hold_plain`), holds of a window on nodes that `pick_in_windows` found; then each of the others, in the order of their
-- keys (`hold_once`). Only locks of keys are waited for: an item that would wait for another lock returns `again`, and its
-- caller repeats it alone. Quotas are changed last, all together. Raises what `hold_once` raises, for the list as a whole.
create or replace function hold_together(p_items jsonb) returns jsonb language plpgsql as $$
declare
    items    constant jsonb := pick_in_windows(p_items);
    answers  jsonb[] := hold_plain(items);
    item     record;
    tenants_ uuid[] := '{}';
    changes  integer[] := '{}';
begin
    for item in select i.one, i.n from jsonb_array_elements(items) with ordinality i(one, n) where answers[i.n] is null
                order by i.one ->> 'tenant_id', i.one ->> 'key' collate "C" loop
        answers[item.n] := hold_once(item.one || '{"together": true}');
    end loop;
    select array_agg(case when items -> (n - 1)::integer ? 'picks' and a ->> 'outcome' in ('busy', 'not_found', 'out_of_service')
                          then '{"outcome": "again"}' else a end order by n)
    into answers from unnest(answers) with ordinality as u(a, n);  -- other nodes may serve
    select coalesce(array_agg(t.tenant::uuid), '{}'), coalesce(array_agg(t.change::integer), '{}') into tenants_, changes
    from unnest(answers) a cross join lateral rows from (
        jsonb_array_elements_text(a -> 'tenants'), jsonb_array_elements_text(a -> 'changes')) t(tenant, change)
    where a ->> 'outcome' = 'held';
    perform change_quotas(tenants_, changes);
    return to_jsonb(answers);
end $$;
