-- Compute a node's free mask and fit class from its slots and open claims, and store them. The caller holds the lock of the
-- node's row: claims are read before the row is updated, so a rival that ends in between would be overwritten.
-- PL/pgSQL keeps the plan; a function in SQL is planned at each call, which costs four times as much.
create or replace function refresh_node_fit(p_node_id uuid) returns void language plpgsql set enable_seqscan = off as $$
declare
    taken int8multirange;
begin
    select range_agg(part) into taken from claims c cross join lateral unnest(c.units) part
    where c.node_id = p_node_id and c.closed_at is null and (c.booked or c.occupied);
    update nodes set free_mask = fit.mask, fit_class = fit.low * 64 + fit.high, row_version = row_version + 1
    from (
        select coalesce(sum(1::bigint << s.slot_index), 0)::bigint as mask,
               count(*) filter (where s.numa_half = 0) as low, count(*) filter (where s.numa_half = 1) as high
        from slots s
        where s.node_id = p_node_id and s.state = 'in_service' and not coalesce(taken @> s.unit, false)
    ) fit where nodes.id = p_node_id;
end $$;
