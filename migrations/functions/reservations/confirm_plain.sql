-- Confirms those of a list that have no obstacle: the key is new, and of no existing creation; the reservation exists, is the
-- tenant's and the holder's, is not locked, is named once in the list, and is a hold whose deadline has not passed by the
-- clock after the locks. Answers by their place in the list, null for all others,
-- which leave nothing behind. Locks in the order of `confirm_once`: keys, in their order, then reservations.
create or replace function confirm_plain(p_items jsonb) returns jsonb[]
language plpgsql set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
    answers jsonb[] := array_fill(null::jsonb, array[jsonb_array_length(p_items)]);
    fresh   bigint[];
    locked  bigint[];
    stamp   timestamptz;
    done    record;
begin
    with asked as materialized (
        select * from confirms_of(p_items)
    ), added as (
        insert into operations (scope, key, fingerprint, ending, retire_after)
        select a.tenant_id, a.key, decode(a.fingerprint, 'hex'), true,
               clock_timestamp() + make_interval(secs => a.retention_seconds)
        from asked a order by a.tenant_id, a.key collate "C"
        on conflict do nothing
        returning scope, key
    )
    select array_agg(a.n) into fresh from added o join asked a on a.tenant_id = o.scope and a.key = o.key;
    with asked as materialized (
        select a.*, row_number() over (partition by a.id order by a.tenant_id, a.key collate "C") as nth
        from confirms_of(p_items) a where a.n = any (fresh) and standing_answer(a.tenant_id, a.key) is null
    ), free as materialized (
        select a.n from asked a join reservations r on r.id = a.id and r.tenant_id = a.tenant_id
        where a.nth = 1 for no key update of r skip locked
    )
    select array_agg(f.n) into locked from free f;
    stamp := clock_timestamp();
    for done in
        with plain as materialized (
            select a.n, a.tenant_id, a.key, a.id, a.request_id, r.row_version
            from confirms_of(p_items) a join reservations r on r.id = a.id
            where a.n = any (locked) and r.holder_id = a.holder_id and r.state = 'hold' and r.expires_at > stamp
        ), moved as materialized (
            select r as reservation from (
                select array_agg(p.id order by p.n) as ids, array_agg(p.row_version order by p.n) as row_versions,
                       array_agg(p.key order by p.n) as keys, array_agg(p.request_id order by p.n) as request_ids
                from plain p
            ) every, advance_reservations(every.ids, 'hold', every.row_versions, 'confirmed', 'reservation.confirmed',
                                          '{"actor_kind": "tenant"}', stamp, 0, every.keys, every.request_ids) r
        ), told as materialized (
            select p.n, p.tenant_id, p.key, p.id, (m.reservation).confirmed_event as event_id, reservation_answer(m.reservation, 'ok')::text as body
            from moved m join plain p on p.id = (m.reservation).id
        )
        update operations o set status = 200, code = 'ok', body = t.body, subject_id = t.id, event_id = t.event_id
        from told t where o.scope = t.tenant_id and o.key = t.key
        returning t.n, t.body
    loop
        answers[done.n] := jsonb_build_object('outcome', 'ok', 'status', 200, 'body', done.body);
    end loop;
    if cardinality(fresh) > (select count(*) from unnest(answers) a where a is not null) then
        delete from operations o using confirms_of(p_items) a
        where a.n = any (fresh) and answers[a.n] is null and o.scope = a.tenant_id and o.key = a.key and o.status is null;
    end if;
    return answers;
end $$;
