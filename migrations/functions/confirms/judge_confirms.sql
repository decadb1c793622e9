-- Decide on each confirm of a list by the clock `p_now`, which the caller read after its locks. `answer`: an outcome of
-- `confirm_reservations` that leaves nothing behind; null: confirm it, or it is confirmed already. `first`: the first such item of
-- its reservation, in the order of the keys; the others find it confirmed.
-- `p_reserved`: places of the items whose keys the caller reserved; `p_standing`: answers of existing creations, by place;
-- `p_locked`: reservations that the caller locked.
create or replace function judge_confirms(
    p_items jsonb, p_reserved bigint[], p_standing jsonb, p_locked uuid[], p_now timestamptz
) returns table (
    n bigint, scope uuid, key text, request_id text, reservation reservations, answer jsonb, first boolean
) language sql stable as $$
select j.n, j.scope, j.key, j.request_id, j.reservation, j.answer,
       row_number() over (partition by j.id, j.answer is null order by j.scope, j.key collate "C") = 1
from (
    select i.n, i.scope, i.key, i.request_id, i.id, r as reservation, case
        when p_standing ? i.n::text then p_standing -> i.n::text
        when i.n <> all (p_reserved) then coalesce(stored_response(i.scope, i.key), '{"outcome": "in_progress"}')
        when r.id is null then '{"outcome": "missing"}'
        when r.id <> all (p_locked) then '{"outcome": "again"}'
        when r.holder_id <> i.holder_id then '{"outcome": "holder"}'
        when r.state = 'confirmed' then null
        when r.state <> 'hold' then jsonb_build_object('outcome', 'state', 'state', r.state)
        when r.expires_at <= p_now then '{"outcome": "overdue"}'
    end as answer
    from confirm_items(p_items) i left join reservations r on r.id = i.id and r.tenant_id = i.tenant_id
) j
$$;
