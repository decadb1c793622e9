-- Decide a hold by the clock of this moment: what it gets, or in `answer` the refusal (the outcomes of `hold_once`).
-- `p_overdue` null: nothing is locked yet; then `lock_nodes`, `lock_resources` and the reservations `due` are to be locked.
-- Otherwise these three are locked, and a GPU hold without `picks` chooses and locks its nodes here.
-- Runs under the planner settings of `hold_once`: setting them again costs more than the call.
create or replace function judge_hold(
    p_item record, p_overdue uuid[], p_nodes uuid[], p_resources text[], out answer jsonb, out stamp timestamptz,
    out during tstzrange, out nodes uuid[], out units int8multirange[], out seats text[], out seat_units int8multirange[],
    out gpus integer, out due uuid[], out lock_nodes uuid[], out lock_resources text[]
) language plpgsql as $$
declare
    named  record;
    rivals record;
begin
    stamp := clock_timestamp();
    answer := refuse_window(p_item.tenant_id, p_item.starts_at, p_item.ends_at, p_item.window_seconds_max, stamp);
    if answer is not null then
        return;
    end if;
    during := tstzrange(greatest(p_item.starts_at, stamp), p_item.ends_at);

    if p_item.pool_id is not null and p_item.picks is null then
        seats := '{}';
        due := '{}';
        lock_nodes := '{}';
        lock_resources := '{}';
        gpus := p_item.gpus * p_item.quantity;
        if p_overdue is not null then
            select array_agg(c.node_id), array_agg(c.units) into nodes, units
            from choose_by_mask(p_item.pool_id, p_item.shape, p_item.gpus, p_item.quantity, p_item.classes, p_item.lows,
                                p_item.highs, p_item.wait) c;
            stamp := clock_timestamp();                      -- it may have waited for its nodes
            answer := case
                when nodes is null then '{"outcome": "no_room"}'
                when nodes[1] is null then '{"outcome": "again"}'
                when p_item.ends_at <= stamp then '{"outcome": "window", "detail": "the window is over"}'
            end::jsonb;
            if answer is not null then
                return;
            end if;
            during := tstzrange(greatest(p_item.starts_at, stamp), p_item.ends_at);
        end if;
    else
        named := select_named(p_item.nodes, p_item.slots, p_item.registered, lower(during) <= stamp);
        nodes := named.nodes;
        units := named.units;
        seats := named.seats;
        seat_units := named.seat_units;
        gpus := named.gpus;
        answer := named.answer;
        if answer is null then
            rivals := judge_rivals(p_item.tenant_id, nodes, seats, named.wanted, during, stamp, p_overdue, p_nodes,
                                   p_resources);
            answer := rivals.answer;
            due := rivals.due;
            lock_nodes := rivals.lock_nodes;
            lock_resources := rivals.lock_resources;
        end if;
    end if;
    if answer is null and gpus > 0 then
        answer := refuse_quota(p_item.tenant_id, gpus, due);
    end if;
end $$;
