-- Judge the holds `p_among` of a list by the clock `p_now`, as far as no rival has to change: on nodes only, named or picked, in
-- service, within their window. Return the claims of those that can be held: within the quota, with no claim in the way,
-- overdue ones included, nor an earlier hold of the list; `nth` orders the claims of a hold. For a hold that others' claims
-- refuse return one row with `conflicts`, the tenant's own among their owners. Holds without a row are for `hold_once`:
-- so are those that nothing but cleanup prevents.
-- Runs under the planner settings of `hold_plain`.
create or replace function plain_holds(p_items jsonb, p_among bigint[], p_now timestamptz)
returns table (n bigint, nth bigint, node_id uuid, unit_base bigint, units int8multirange, during tstzrange, conflicts jsonb)
language plpgsql stable as $$
#variable_conflict use_column
begin
    return query
    with fitting as materialized (
        select i.* from holds_of(p_items) i
        where i.n = any (p_among) and i.registered = '{}' and (i.picks is not null or i.sku is null)
          and refuse_window(i.tenant_id, i.starts_at, i.ends_at, i.window_seconds_max, p_now) is null
    ), asked as materialized (
        select f.n, f.tenant_id, f.nodes, f.slots, f.picks, tstzrange(greatest(f.starts_at, p_now), f.ends_at) as during
        from fitting f
    ), named as materialized (
        select a.n, u.node_id, u.part, a.picks is not null as picked,
               u.node_id is null or u.stopped is not null or u.stopped_now is not null and lower(a.during) <= p_now as refused
        from asked a cross join lateral named_units(a.nodes, a.slots, '{}') u
    ), part as materialized (
        select u.n, row_number() over (partition by u.n order by u.node_id) as nth, u.node_id, range_agg(u.part) as units
        from named u where not u.picked and not u.refused group by u.n, u.node_id
        union all
        select a.n, p.nth, d.id, mask_to_units(d.unit_base, (p.pick ->> 'mask')::bigint)
        from asked a cross join lateral jsonb_array_elements(a.picks) with ordinality p(pick, nth)
        join nodes d on d.id = (p.pick ->> 'node')::uuid
    ), claim as materialized (
        select p.*, a.tenant_id, a.during,
               (select sum(upper(r) - lower(r)) from unnest(p.units) r) as gpus
        from part p join asked a on a.n = p.n
    ), rival as materialized (
        -- OFFSET keeps the planner from searching the index of units for a time alone, which reads all of it.
        select c.n, r.owner_kind || 's/' || r.owner_id as owner, r.tenant_id = c.tenant_id as own, r.booked,
               coalesce(h.state = 'hold' and h.expires_at <= p_now, false) as overdue
        from claim c cross join lateral (select * from claims r where r.closed_at is null and r.node_id = c.node_id offset 0) r
        left join reservation_states h on r.owner_kind = 'reservation' and h.id = r.owner_id
        where r.units && c.units and (r.booked and r.during && c.during or r.occupied and lower(c.during) <= p_now)
    ), blocked as materialized (
        select u.n from named u where u.refused
        union all
        select r.n from rival r
        union all
        select c.n from claim c join claim e on e.node_id = c.node_id
        where e.n < c.n and e.units && c.units and e.during && c.during
        union all
        select c.n from claim c join tenant_quotas q on q.tenant_id = c.tenant_id
        where q.gpus_used + (select sum(e.gpus) from claim e where e.tenant_id = c.tenant_id) > q.gpus_limit
    )
    select c.n, c.nth, c.node_id, d.unit_base, c.units, c.during, null::jsonb from claim c join nodes d on d.id = c.node_id
    where c.n <> all (array(select b.n from blocked b))
    union all
    select r.n, 0, null, null, null, null, coalesce(jsonb_agg(distinct r.owner) filter (where r.own and not r.overdue), '[]')
    from rival r where r.n <> all (array(select u.n from named u where u.refused))
    group by r.n having bool_or(not r.overdue and r.booked);
end $$;
