-- Write, in one batch, the holds of a list that no rival blocks: the key is new, `plain_holds` finds the units free before the
-- locks and again under them, and no other transaction has locked one of the nodes. Holds whose units have committed claims
-- are `busy` without a lock. Return outcomes of `hold_once` (`held`, `busy`) by the place in the list; null for the others,
-- for which nothing is written.
-- Lock order: keys in their order, then nodes by id, without waiting for a node.
create or replace function hold_plain(p_items jsonb) returns jsonb[] language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
declare
    answers jsonb[] := array_fill(null::jsonb, array[jsonb_array_length(p_items)]);
    free    bigint[];
    busy    jsonb;                                           -- conflicts by the place in the list
    fresh   bigint[];
    locked  uuid[];
    done    record;
begin
    select array_agg(distinct h.n) filter (where h.conflicts is null),
           jsonb_object_agg(h.n, h.conflicts) filter (where h.conflicts is not null) into free, busy
    from plain_holds(p_items, array(select generate_series(1, jsonb_array_length(p_items))), clock_timestamp()) h;
    for done in
        select i.n from holds_of(p_items) i
        where busy ? i.n::text and not exists (select from operations o where o.scope = i.tenant_id and o.key = i.key)
          and not exists (select from standing_creation(i.tenant_id, i.key))
    loop
        answers[done.n] := jsonb_build_object('outcome', 'busy', 'conflicts', busy -> done.n::text);
    end loop;
    with added as (
        insert into operations (scope, key, fingerprint, caller, retire_after)
        select i.tenant_id, i.key, decode(i.fingerprint, 'hex'), p_items -> (i.n - 1)::integer -> 'caller',
               clock_timestamp() + make_interval(secs => i.retire_seconds)
        from holds_of(p_items) i
        where i.n = any (free) and not exists (select from operations o where o.scope = i.tenant_id and o.key = i.key)
          and not exists (select from standing_creation(i.tenant_id, i.key))
        order by i.tenant_id, i.key collate "C"
        on conflict do nothing
        returning scope, key
    )
    select array_agg(i.n) into fresh from holds_of(p_items) i join added o on o.scope = i.tenant_id and o.key = i.key;
    if fresh is null then
        return answers;
    end if;
    locked := array(
        select d.id from nodes d where d.id = any (array(
            select unnest(i.nodes) from holds_of(p_items) i where i.n = any (fresh)
            union select (slot ->> 'node')::uuid from holds_of(p_items) i, jsonb_array_elements(i.slots) slot
                  where i.n = any (fresh)
        )) order by d.id for no key update skip locked);
    for done in select w.* from write_holds(p_items, fresh, locked, clock_timestamp()) w loop
        answers[done.n] := jsonb_build_object('outcome', 'held', 'status', 201, 'body', done.body,
                                              'tenants', array[done.tenant_id], 'changes', array[done.gpus]);
    end loop;
    delete from operations o using holds_of(p_items) i
    where i.n = any (fresh) and answers[i.n] is null and o.scope = i.tenant_id and o.key = i.key and o.status is null;
    if room_left('reservations', (p_items -> 0 ->> 'reservations_max')::bigint) < 0 then
        raise exception 'reservations' using errcode = 'BF001';
    elsif room_left('holds', (p_items -> 0 ->> 'holds_max')::bigint) < 0 then
        raise exception 'holds' using errcode = 'BF001';
    end if;
    return answers;
end $$;
