-- Candidates for the holds `p_among` of a list: nodes of their pool by the slots that are free throughout each hold's
-- window, best class first, at most `p_limit` for each hold. The claims of a pool are read once for all holds of the list.
-- As `nodes_in_window`: only nodes of `claims_windowed`; overdue holds do not count.
create or replace function free_in_windows_for(p_items jsonb, p_among bigint[], p_now timestamptz, p_limit integer)
returns table (n bigint, node_id uuid, half_slots smallint, mask bigint) language sql stable set enable_seqscan = off set jit = off as $$
    with item as materialized (
        select i.n, i.pool_id, i.classes, i.spread, greatest(i.starts_at, p_now) as begins, coalesce(i.ends_at, 'infinity') as ends,
               case when i.shape = 'baremetal' then i.gpus end as whole
        from holds_of(p_items) i where i.n = any (p_among)
    ), overdue as materialized (
        select r.id from reservation_states r where r.state = 'hold' and r.expires_at <= p_now
    ), windowed as materialized (
        select distinct c.node_id from claims c
        where c.closed_at is null and c.node_id is not null and (c.owner_kind = 'reservation' or not c.booked
              or not upper_inf(c.during) or lower(c.during) > c.created_at)
    ), near as materialized (
        select d.id, d.pool_id, d.unit_base, d.slot_count, d.half_slots, d.placement_rank from nodes d
        where d.id in (select w.node_id from windowed w) and d.state = 'active' and d.online
          and d.pool_id in (select i.pool_id from item i)
    ), block as materialized (
        select d.id, d.pool_id, d.unit_base, c.units, lower(c.during) as begins,
               blocked_until(c.during, c.booked, c.occupied, c.waits_until, p_now) as until
        from near d join claims c on c.node_id = d.id
        where c.closed_at is null and c.owner_id not in (select o.id from overdue o)
    ), taken as (
        select i.n, b.id, bit_or(units_to_mask(b.unit_base, b.units)) as mask
        from item i join block b on b.pool_id = i.pool_id and b.begins < i.ends and b.until > i.begins group by i.n, b.id
    ), stopped as (
        select s.node_id, bit_or(1::bigint << s.slot_index) as mask from slots s where s.state = 'out_of_service' group by 1
    ), free as (
        select i.n, d.id, d.half_slots, i.spread, i.classes, (d.placement_rank + i.spread) % 2147483648 as rank,
               ((1::bigint << d.slot_count) - 1) & ~(coalesce(t.mask, 0) | coalesce(s.mask, 0)) as mask
        from item i join near d on d.pool_id = i.pool_id and (i.whole is null or d.slot_count = i.whole)
        left join taken t on t.n = i.n and t.id = d.id left join stopped s on s.node_id = d.id
    ), ranked as (
        select f.*, row_number() over (partition by f.n order by case when f.spread = 0 then f.place end, f.rank, f.id) as nth
        from (select free.*, array_position(classes, class_of_mask(mask, half_slots)::smallint) as place from free offset 0) f
        where f.place is not null
    )
    select r.n, r.id, r.half_slots, r.mask from ranked r where r.nth <= p_limit order by r.n, r.nth
$$;
