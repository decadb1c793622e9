-- Holds for a list, each as if it were alone, and answers them in the order of the list: first those that meet no
-- obstacle, all at once, on nodes that `pick_in_windows` found for holds of a window; then the others in the order of
-- their keys. None of them waits for a rival's lock except for its key's: one that would have to wait is answered `again`
-- and is for its caller to repeat. Quotas come last, all together. Raises what `hold_once` raises, for the list as a whole.
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
