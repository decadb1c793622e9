-- Confirms that arrive together and that nothing stands in the way of take a handful of statements, however many they are
-- (docs/performance.md). Everything else goes one by one, as before.

-- The one door of what a reservation becomes, for many at once: each from its own `row_version`, with its event. Those that are
-- no longer in `p_from` at that version are left as they are, and not returned.
create function advance_reservations(
    p_ids uuid[], p_from text, p_row_versions bigint[], p_to text, p_event_type text, p_payload jsonb, p_judged_at timestamptz,
    p_retention_seconds float8, p_operation_keys text[], p_request_ids text[]
) returns setof reservations language sql set enable_seqscan = off as $$
with asked as materialized (
    select a.*, uuidv7() as event
    from unnest(p_ids, p_row_versions, p_operation_keys, p_request_ids) as a(id, row_version, operation_key, request_id)
), moved as (
    update reservations r set
        state = p_to,
        row_version = r.row_version + 1,
        expires_at = case when p_to = 'expired' then r.expires_at end,
        confirmed_at = case when p_to = 'confirmed' then p_judged_at else r.confirmed_at end,
        ended_at = case when p_to <> 'confirmed' then p_judged_at end,
        ended_event = case when p_to <> 'confirmed' then a.event end,
        retire_after = case when p_to <> 'confirmed' then p_judged_at + make_interval(secs => p_retention_seconds) end,
        waits_for = case when p_to = 'confirmed' then 'window' end,
        waits_since = case when p_to = 'confirmed' then p_judged_at end,
        waits_until = case when p_to = 'confirmed' then case when r.template is not null then r.starts_at else r.ends_at end end
    from asked a
    where r.id = a.id and r.state = p_from and r.row_version = a.row_version
    returning r as reservation, a.event, a.operation_key, a.request_id
), told as (
    insert into outbox (event_id, event_type, correlation_id, tenant_id, subject, operation_key, request_id, payload)
    select m.event, p_event_type, (m.reservation).correlation_id, (m.reservation).tenant_id,
           'reservations/' || (m.reservation).id, m.operation_key, m.request_id,
           jsonb_build_object('reservation_id', (m.reservation).id, 'holder_id', (m.reservation).holder_id,
                              'judged_at', rfc3339(p_judged_at)) || p_payload
    from moved m
)
select (m.reservation).* from moved m
$$;

create or replace function advance_reservation(
    p_id uuid, p_from text, p_row_version bigint, p_to text, p_event_type text, p_payload jsonb, p_judged_at timestamptz,
    p_retention_seconds float8, p_operation_key text, p_request_id text
) returns bigint language sql as $$
select r.row_version from advance_reservations(array[p_id], p_from, array[p_row_version], p_to, p_event_type, p_payload, p_judged_at,
                                               p_retention_seconds, array[p_operation_key], array[p_request_id]) r
$$;

-- Of a list, those that nothing stands in the way of: the key is new, and of no creation that still stands; the reservation is
-- there, is the tenant's and the holder's, nobody has it locked, no other of the list is for it, and it is a hold whose deadline
-- has not passed by the clock after the locks. They are confirmed. Answers by their place in the list, null for all others,
-- which leave nothing behind. Locks in the order of `confirm_once`: keys, in their order, then reservations.
create function confirm_plain(p_items jsonb) returns jsonb[]
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
            select p.n, p.tenant_id, p.key, p.id, reservation_answer(m.reservation, 'ok')::text as body
            from moved m join plain p on p.id = (m.reservation).id
        )
        update operations o set status = 200, code = 'ok', body = t.body, subject_id = t.id
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

-- What the calls take for a list, with its places in it.
create function confirms_of(p_items jsonb) returns table (
    tenant_id uuid, key text, fingerprint text, retention_seconds float8, id uuid, holder_id text, request_id text, n bigint
) language sql immutable as $$
select i.* from rows from (jsonb_to_recordset(p_items) as (tenant_id uuid, key text, fingerprint text,
                           retention_seconds float8, id uuid, holder_id text, request_id text)) with ordinality
    as i(tenant_id, key, fingerprint, retention_seconds, id, holder_id, request_id, n)
$$;

-- Confirms for a list, each as if it were alone; those that something stands in the way of in the order of their keys, after the
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
