-- Placement for holds from now on: locks nodes of the pool by their materialised fit, best class first, until `p_count`
-- claims of `p_gpus` slots have their place; several may lie on one node. No rows: there is no room.
-- Never waits, unless `p_wait`: then it looks first, locks what it found in order, and takes it only if it is unchanged;
-- otherwise it answers one row of nulls.
create or replace function choose_by_mask(
    p_pool integer, p_shape text, p_gpus integer, p_count integer, p_classes smallint[], p_lows smallint[],
    p_highs smallint[], p_wait boolean
) returns table (node_id uuid, units int8multirange) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
declare
    held   uuid[] := '{}';
    bases  bigint[] := '{}';
    halves smallint[] := '{}';
    masks  bigint[] := '{}';
    seen   bigint[] := '{}';
    class_ integer[] := '{}';
    known  integer;
    place_ integer;
    found_ record;
    picked bigint;
    picks  bigint[] := '{}';
    spots  integer[] := '{}';
begin
    for claim in 1..p_count loop
        known := null;
        place_ := cardinality(p_classes) + 1;
        select h.k, array_position(p_classes, h.class::smallint) as place into found_
        from unnest(class_) with ordinality as h(class, k)
        where array_position(p_classes, h.class::smallint) is not null order by 2, 1 limit 1;
        if found_.k is not null then
            known := found_.k;
            place_ := found_.place;
        end if;
        if place_ > 1 then
            found_ := lock_best_node(p_pool, p_shape, p_gpus, p_classes[1:place_ - 1], held,
                                     case when p_wait then 'none' else 'skip' end, null);
            if found_.id is not null then
                known := cardinality(held) + 1;
                place_ := found_.place;
                held[known] := found_.id;
                bases[known] := found_.unit_base;
                halves[known] := found_.half_slots;
                masks[known] := found_.free_mask;
                seen[known] := found_.free_mask;
                class_[known] := p_classes[place_];
            end if;
        end if;
        if known is null then
            return;
        end if;
        picked := pick_slots(masks[known], halves[known], p_lows[place_], p_highs[place_]);
        masks[known] := masks[known] & ~picked;
        class_[known] := class_[known] - p_lows[place_] * 64 - p_highs[place_];
        picks := picks || picked;
        spots := spots || known;
    end loop;
    if p_wait then
        perform from nodes n where n.id = any (held) order by n.id for no key update;
        perform from unnest(held, seen) h(id, mask) join nodes n on n.id = h.id
        where n.free_mask <> h.mask or n.state <> 'active' or not n.online;
        if found then
            return query select null::uuid, null::int8multirange;
            return;
        end if;
    end if;
    return query select held[p.spot], mask_to_units(bases[p.spot], p.picked) from unnest(spots, picks) as p(spot, picked);
end $$;
