-- Write those holds `p_among` of a list that `plain_holds` still finds free by the clock `p_now`, after the locks, and all of
-- whose nodes are `p_locked`: reservation, claims, event and operation, each table by one statement. Return what they got.
-- Runs under the planner settings of `hold_plain`.
create or replace function write_holds(p_items jsonb, p_among bigint[], p_locked uuid[], p_now timestamptz)
returns table (n bigint, tenant_id uuid, gpus integer, body text) language plpgsql as $$
#variable_conflict use_column
begin
    return query
    with judged as materialized (
        select h.*, nextval('fences') as fence, nextval('claims_id_seq') as claim_id,
               bool_and(h.node_id = any (p_locked)) over (partition by h.n) as locked
        from plain_holds(p_items, p_among, p_now) h where h.conflicts is null
    ), part as materialized (
        select j.n, j.nth, j.node_id, j.claim_id, j.fence, j.units, j.during, unit - j.unit_base as slot
        from judged j cross join lateral unnest(j.units) r cross join lateral generate_series(lower(r), upper(r) - 1) unit
        where j.locked
    ), claim as materialized (
        select p.n, p.node_id, p.claim_id, p.fence, p.units, p.during, bit_or(1::bigint << p.slot::integer) as mask,
               count(*) as gpus, min(p.nth) as nth, array_agg('slot:' || p.node_id || ':' || p.slot order by p.slot) as slots,
               (select jsonb_agg(jsonb_build_array(lower(r), upper(r)) order by r) from unnest(p.units) r) as ranges
        from part p group by p.n, p.node_id, p.claim_id, p.fence, p.units, p.during
    ), summed as materialized (
        select c.n, sum(c.gpus)::integer as gpus, min(lower(c.during)) as begins, nextval('reservation_positions') as position,
               array_agg('node:' || c.node_id order by c.nth) as nodes,
               jsonb_agg(jsonb_build_object('node_id', c.node_id, 'resource_id', null, 'fence', c.fence, 'units', c.ranges)
                         order by c.claim_id) as claims
        from claim c group by c.n
    ), put as materialized (
        select i.*, s.gpus as held, s.begins, s.position, s.claims, reservation_id(i.shard, s.position) as id,
               case when i.sku is null then i.resources when i.shape = 'baremetal' then s.nodes
                    else array(select slot from claim c, unnest(c.slots) with ordinality u(slot, place)
                               where c.n = i.n order by c.nth, u.place) end as chosen,
               least(p_now + make_interval(secs => i.ttl_seconds), i.ends_at) as until
        from summed s join holds_of(p_items) i on i.n = s.n
    ), claims_put as (
        insert into claims (id, node_id, tenant_id, owner_kind, owner_id, units, during, fence) overriding system value
        select c.claim_id, c.node_id, p.tenant_id, 'reservation', p.id, c.units, c.during, c.fence
        from claim c join put p on p.n = c.n
    ), made as (
        insert into reservations (id, position, tenant_id, holder_id, resources, sku, gpus, region, quantity, gpus_held,
            starts_at, ends_at, hold_until, expires_at, template, name, operation_key, operation_fingerprint, correlation_id,
            held_at, held_event, waits_for, waits_since, waits_until)
        select p.id, p.position, p.tenant_id, p.holder_id, p.chosen, p.sku, p.gpus, p.region, coalesce(p.quantity, 1), p.held,
            p.begins, p.ends_at, p.until, p.until, p.template, p.name, p.key, decode(p.fingerprint, 'hex'), p.correlation_id,
            p_now, uuidv7(), 'holder', p_now, p.until
        from put p
        returning *, reservation_body(reservations, null, null, 'ok')::text as body
    ), event as (
        insert into outbox (event_id, event_type, correlation_id, tenant_id, subject, operation_key, request_id, payload)
        select m.held_event, 'reservation.held', m.correlation_id, m.tenant_id, 'reservations/' || m.id, m.operation_key,
            p.request_id, jsonb_build_object('reservation_id', m.id, 'holder_id', m.holder_id, 'judged_at', rfc3339(p_now),
                'claims', p.claims, 'sku', m.sku, 'gpus', m.gpus, 'region', m.region,
                'count', case when m.sku is not null then m.quantity end, 'resources', to_jsonb(m.resources),
                'gpus_held', m.gpus_held, 'starts_at', rfc3339(m.starts_at), 'ends_at', rfc3339(m.ends_at),
                'hold_until', rfc3339(m.hold_until))
        from made m join put p on p.id = m.id
    ), fit as (
        update nodes d set free_mask = d.free_mask & ~t.mask, row_version = d.row_version + 1,
                           fit_class = class_of_mask(d.free_mask & ~t.mask, d.half_slots)
        from (select c.node_id, bit_or(c.mask) as mask from claim c group by c.node_id) t where d.id = t.node_id
    )
    update operations o set status = 201, code = 'ok', body = m.body, subject_id = m.id, event_id = m.held_event
    from made m join put p on p.id = m.id where o.scope = p.tenant_id and o.key = p.key
    returning p.n, p.tenant_id, p.held, m.body;
end $$;
