-- Everything that decides what fits in these pools from `p_from` on, packed (a row each would cost more than all the rest):
--   fixed    [[pool, slots of the node, slots of it that are free at any time, how many such nodes], ...]
--   nodes    per node of `claims_windowed`: pool int4, slots int4, mask of those in service int8
--   blocks   per claim on them: place of the node in `nodes` int4, from int8, until int8 (microseconds since 2000), mask int8
create or replace function pools_in_time(p_pools integer[], p_from timestamptz, p_now timestamptz)
returns table (fixed jsonb, nodes bytea, blocks bytea) language sql stable set enable_seqscan = off set jit = off as $$
    with overdue as materialized (
        select r.id from reservation_states r where r.state = 'hold' and r.expires_at <= p_now
    ), windowed as materialized (
        select distinct c.node_id from claims c
        where c.closed_at is null and c.node_id is not null and (c.owner_kind = 'reservation' or not c.booked
              or not upper_inf(c.during) or lower(c.during) > c.created_at)
    ), ready as materialized (
        select n.id, n.pool_id, n.unit_base, n.slot_count, n.free_mask, w.node_id is not null as windowed
        from nodes n left join windowed w on w.node_id = n.id
        where n.pool_id = any (p_pools) and n.state = 'active' and n.online
    ), stopped as (
        select s.node_id, bit_or(1::bigint << s.slot_index) as mask from slots s where s.state = 'out_of_service' group by 1
    ), near as materialized (
        select r.id, r.pool_id, r.unit_base, r.slot_count, row_number() over () - 1 as place,
               ((1::bigint << r.slot_count) - 1) & ~coalesce(s.mask, 0) as mask
        from ready r left join stopped s on s.node_id = r.id where r.windowed
    )
    select
        (select coalesce(jsonb_agg(jsonb_build_array(f.pool_id, f.slot_count, f.free, f.number)), '[]')
         from (select r.pool_id, r.slot_count, bit_count(r.free_mask::bit(64)) as free, count(*) as number
               from ready r where not r.windowed group by 1, 2, 3) f),
        (select coalesce(string_agg(int4send(n.pool_id) || int4send(n.slot_count) || int8send(n.mask), ''::bytea
                                    order by n.place), '')
         from near n),
        (select coalesce(string_agg(
             int4send(n.place::integer) || timestamptz_send(lower(c.during))
             || timestamptz_send(blocked_until(c.during, c.booked, c.occupied, c.waits_until, p_now))
             || int8send(units_to_mask(n.unit_base, c.units)), ''::bytea), '')
         -- One scan with all ids fetches each page of claims once; a scan per node fetches one for nearly every claim.
         from claims c join near n on n.id = c.node_id
         where c.node_id = any (array(select id from near)) and c.closed_at is null
           and blocked_until(c.during, c.booked, c.occupied, c.waits_until, p_now) > p_from
           and c.owner_id not in (select o.id from overdue o))
$$;
