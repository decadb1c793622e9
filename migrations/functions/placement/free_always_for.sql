-- Candidates for the holds `p_among` of a list: nodes of their pool whose free slots have no end, best class first, at most
-- `p_limit` for each hold. With `spread` any class, in a rotated order: after lost races.
create or replace function free_always_for(p_items jsonb, p_among bigint[], p_limit integer)
returns table (n bigint, node_id uuid, half_slots smallint, mask bigint) language sql stable as $$
    select i.n, f.id, f.half_slots, f.free_mask
    from holds_of(p_items) i cross join lateral (
        select d.id, d.half_slots, d.free_mask, d.placement_rank, c.place
        from unnest(i.classes) with ordinality as c(class, place) cross join lateral (
            select id, half_slots, free_mask, placement_rank from nodes
            where pool_id = i.pool_id and fit_class = c.class and state = 'active' and online
              and (i.shape = 'gpu_slice' or slot_count = i.gpus)
            order by placement_rank, id limit p_limit
        ) d
        order by case when i.spread = 0 then c.place end, (d.placement_rank + i.spread) % 2147483648, d.id limit p_limit
    ) f
    where i.n = any (p_among)
    order by i.n, case when i.spread = 0 then f.place end, (f.placement_rank + i.spread) % 2147483648, f.id
$$;
