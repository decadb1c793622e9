-- The nodes of a pool that serve one of `p_classes` throughout the window, best class first, at most `p_limit`; `mask`: the
-- slots that are free all the time. Only nodes of `claims_windowed`. Holds that are past their deadline do not count:
-- the command that takes their units expires them. `p_whole`: nodes of so many slots only (bare metal); null: any.
create or replace function nodes_in_window(
    p_pool integer, p_starts timestamptz, p_ends timestamptz, p_now timestamptz, p_whole integer, p_classes smallint[],
    p_limit integer
) returns table (node_id uuid, unit_base bigint, slot_count smallint, half_slots smallint, placement_rank integer, mask bigint)
language sql stable set enable_seqscan = off set jit = off as $$
    with overdue as materialized (
        select r.id from reservation_states r where r.state = 'hold' and r.expires_at <= p_now
    ), near as materialized (
        select n.id, n.unit_base, n.slot_count, n.half_slots, n.placement_rank from nodes n
        where n.pool_id = p_pool and n.state = 'active' and n.online and (p_whole is null or n.slot_count = p_whole)
          and n.id in (select c.node_id from claims c
                       where c.closed_at is null and c.node_id is not null and (c.owner_kind = 'reservation' or not c.booked
                             or not upper_inf(c.during) or lower(c.during) > c.created_at))
    ), taken as (
        select n.id, bit_or(units_to_mask(n.unit_base, c.units)) as mask
        from near n join claims c on c.node_id = n.id
        where c.closed_at is null and lower(c.during) < coalesce(p_ends, 'infinity')
          and blocked_until(c.during, c.booked, c.occupied, c.waits_until, p_now) > p_starts
          and c.owner_id not in (select o.id from overdue o)
        group by n.id
    ), stopped as (
        select s.node_id, bit_or(1::bigint << s.slot_index) as mask from slots s where s.state = 'out_of_service' group by 1
    ), free as (
        select n.*, ((1::bigint << n.slot_count) - 1) & ~(coalesce(t.mask, 0) | coalesce(s.mask, 0)) as mask
        from near n left join taken t on t.id = n.id left join stopped s on s.node_id = n.id
    )
    select f.id, f.unit_base, f.slot_count, f.half_slots, f.placement_rank, f.mask
    from free f join unnest(p_classes) with ordinality as c(class, place)
      on c.class = 64 * bit_count((f.mask & ((1::bigint << f.half_slots) - 1))::bit(64))
                   + bit_count((f.mask >> f.half_slots)::bit(64))
    order by c.place, f.placement_rank, f.id limit p_limit
$$;
