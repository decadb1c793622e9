-- Lock the first node of the best of `p_classes` that is not in `p_held`; `place` is the place of its class. Null: there is
-- none. `p_node`, if given, is the only candidate, whatever its class. `p_lock`: skip (pass locked nodes), wait (wait for the lock), none (do not lock).
-- Runs under the planner settings of its caller: setting them again costs more than the call.
create or replace function lock_best_node(
    p_pool integer, p_shape text, p_gpus integer, p_classes smallint[], p_held uuid[], p_lock text,
    p_node uuid, out id uuid, out unit_base bigint, out free_mask bigint, out half_slots smallint, out place bigint
) language plpgsql as $$
#variable_conflict use_column
begin
    if p_node is not null then
        select n.id, n.unit_base, n.free_mask, n.half_slots, 0 into id, unit_base, free_mask, half_slots, place
        from nodes n where n.id = p_node and n.state = 'active' and n.online for no key update;
    elsif p_lock = 'skip' then
        select n.*, c.place into id, unit_base, free_mask, half_slots, place
        from unnest(p_classes) with ordinality as c(class, place)
        cross join lateral (
            select id, unit_base, free_mask, half_slots from nodes
            where pool_id = p_pool and fit_class = c.class and state = 'active' and online
              and (p_shape = 'gpu_slice' or slot_count = p_gpus) and id <> all (p_held)
            order by placement_rank, id limit 1 for no key update skip locked
        ) n order by c.place limit 1;
    elsif p_lock = 'wait' then
        -- Its class may change while this waits for its lock, so it is locked whatever its class, which is evaluated after the lock.
        select n.id, n.unit_base, n.free_mask, n.half_slots, array_position(p_classes, n.fit_class::smallint)
        into id, unit_base, free_mask, half_slots, place
        from nodes n where n.state = 'active' and n.online and n.id = (
            select best.id from unnest(p_classes) with ordinality as c(class, place)
            cross join lateral (
                select id from nodes
                where pool_id = p_pool and fit_class = c.class and state = 'active' and online
                  and (p_shape = 'gpu_slice' or slot_count = p_gpus) and id <> all (p_held)
                order by placement_rank, id limit 1
            ) best order by c.place limit 1)
        for no key update;
        if place is null then
            id := null;
        end if;
    else
        select n.*, c.place into id, unit_base, free_mask, half_slots, place
        from unnest(p_classes) with ordinality as c(class, place)
        cross join lateral (
            select id, unit_base, free_mask, half_slots from nodes
            where pool_id = p_pool and fit_class = c.class and state = 'active' and online
              and (p_shape = 'gpu_slice' or slot_count = p_gpus) and id <> all (p_held)
            order by placement_rank, id limit 1
        ) n order by c.place limit 1;
    end if;
end $$;
