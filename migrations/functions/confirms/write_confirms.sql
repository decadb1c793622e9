-- Confirm those of a list that `judge_confirms` allows, by the clock `p_now` after the locks, and delete the keys of the others.
-- Return the outcomes of `confirm_reservations`, in the order of the list.
-- Runs under the planner settings of its caller: setting them again costs more than the call.
create or replace function write_confirms(
    p_items jsonb, p_reserved bigint[], p_standing jsonb, p_locked uuid[], p_now timestamptz, p_actor_kind text, p_actor_id text
) returns jsonb language plpgsql as $$
declare
    answers jsonb;
    refused boolean;
begin
    with judged as materialized (
        select j.* from judge_confirms(p_items, p_reserved, p_standing, p_locked, p_now) j
    ), moved as materialized (
        select m as reservation from (
            select array_agg((j.reservation).id order by j.n) as ids, array_agg(j.key order by j.n) as keys,
                   array_agg((j.reservation).row_version order by j.n) as row_versions,
                   array_agg(j.request_id order by j.n) as request_ids
            from judged j where j.answer is null and j.first and (j.reservation).state = 'hold'
        ) every, advance_reservations(
            every.ids, 'hold', every.row_versions, 'confirmed', 'reservation.confirmed',
            jsonb_strip_nulls(jsonb_build_object('actor_kind', p_actor_kind, 'actor_id', p_actor_id)), p_now, 0, every.keys,
            every.request_ids) m
    ), done as materialized (
        select j.n, j.scope, j.key, coalesce(m.reservation, j.reservation) as reservation,
               case when (m.reservation).id is not null and j.first then 'ok' else 'noop' end as code
        from judged j left join moved m on (m.reservation).id = (j.reservation).id
        where j.answer is null
    ), stored as (
        update operations o set status = 200, code = d.code, body = reservation_answer(d.reservation, d.code)::text,
                                subject_id = (d.reservation).id, event_id = (d.reservation).confirmed_event
        from done d where o.scope = d.scope and o.key = d.key
        returning d.n, jsonb_build_object('outcome', o.code, 'status', o.status, 'body', o.body) as answer
    )
    select jsonb_agg(coalesce(j.answer, s.answer) order by j.n), bool_or(j.answer is not null) into answers, refused
    from judged j left join stored s on s.n = j.n;
    if refused then
        delete from operations o using confirm_items(p_items) i
        where (i.n = any (p_reserved) or p_standing ? i.n::text) and o.scope = i.scope and o.key = i.key
          and answers -> (i.n - 1)::integer ->> 'outcome' not in ('ok', 'noop');
    end if;
    if answers @> '[{"outcome": "noop"}]' then
        perform tell_committed_v2(i.scope, i.key, 200, 'noop', i.request_id, null, null)
        from confirm_items(p_items) i where answers -> (i.n - 1)::integer ->> 'outcome' = 'noop' order by i.n;
    end if;
    return answers;
end $$;
