-- Write a hold that was decided: expire the holds in its way, insert claims and reservation, emit `reservation.held`, settle
-- operation and quota. Return the outcome `held` of `hold_once`. Raises BF001 at a bound, BQ001 when a quota moved
-- or the tenant was deleted.
-- Runs under the planner settings of `hold_once`: setting them again costs more than the call.
create or replace function write_hold(
    p_item record, p_now timestamptz, p_during tstzrange, p_nodes uuid[], p_units int8multirange[], p_seats text[],
    p_seat_units int8multirange[], p_gpus integer, p_due uuid[]
) returns jsonb language plpgsql as $$
declare
    until     timestamptz;
    tenants_  uuid[] := '{}';
    changes   integer[] := '{}';
    position_ bigint;
    made      reservations;
    claims_   jsonb;
    chosen    text[];
    answer    text;
begin
    if p_item.picks is not null then                           -- one claim per pick, even where two share a node
        select array_agg(n.id order by p.nth), array_agg(mask_to_units(n.unit_base, (p.pick ->> 'mask')::bigint) order by p.nth)
        into p_nodes, p_units
        from jsonb_array_elements(p_item.picks) with ordinality as p(pick, nth)
        join nodes n on n.id = (p.pick ->> 'node')::uuid;
    end if;
    if cardinality(p_due) > 0 then
        select e.tenants, e.changes into tenants_, changes from expire_holds(p_due, p_now, p_item.retention_seconds) e;
    end if;

    until := least(p_now + make_interval(secs => p_item.ttl_seconds), p_item.ends_at);
    position_ := nextval('reservation_positions');
    made.id := reservation_id(p_item.shard, position_);
    claims_ := write_hold_claims(made.id, p_item.tenant_id, p_during, p_nodes, p_units, p_seats, p_seat_units);
    if p_item.pool_id is not null then
        select array_agg(case when p_item.shape = 'baremetal' then 'node:' || c.node_id
                              else 'slot:' || c.node_id || ':' || c.unit - n.unit_base end order by c.nth, c.unit)
        into chosen
        from (select h.node_id, h.nth, generate_series(lower(part), upper(part) - 1) as unit
              from unnest(p_nodes, p_units) with ordinality as h(node_id, units, nth), unnest(h.units) part) c
        join nodes n on n.id = c.node_id
        where p_item.shape <> 'baremetal' or c.unit = n.unit_base;
    end if;
    insert into reservations (id, position, tenant_id, holder_id, resources, sku, gpus, region, quantity, gpus_held,
        starts_at, ends_at, hold_until, expires_at, template, name, operation_key, operation_fingerprint, correlation_id,
        held_at, held_event, waits_for, waits_since, waits_until)
    values (made.id, position_, p_item.tenant_id, p_item.holder_id, coalesce(chosen, p_item.resources), p_item.sku, p_item.gpus,
        p_item.region, coalesce(p_item.quantity, 1), p_gpus, lower(p_during), p_item.ends_at, until, until, p_item.template,
        p_item.name, p_item.key, decode(p_item.fingerprint, 'hex'), p_item.correlation_id, p_now, uuidv7(), 'holder', p_now, until)
    returning * into made;
    insert into outbox (event_id, event_type, correlation_id, tenant_id, subject, operation_key, request_id, payload)
    values (made.held_event, 'reservation.held', made.correlation_id, made.tenant_id, 'reservations/' || made.id,
        made.operation_key, p_item.request_id,
        jsonb_build_object('reservation_id', made.id, 'holder_id', made.holder_id, 'judged_at', rfc3339(p_now),
            'claims', claims_, 'sku', made.sku, 'gpus', made.gpus, 'region', made.region,
            'count', case when made.sku is not null then made.quantity end, 'resources', to_jsonb(made.resources),
            'gpus_held', made.gpus_held, 'starts_at', rfc3339(made.starts_at), 'ends_at', rfc3339(made.ends_at),
            'hold_until', rfc3339(made.hold_until)));
    perform refresh_node_fit(n.id) from (select distinct unnest(p_nodes) as id) n;
    if cardinality(p_seats) > 0 then
        update resources set row_version = row_version + 1 where id = any (p_seats);
    end if;
    answer := first_reservation_body(made)::text;
    update operations set status = 201, code = 'ok', body = answer, subject_id = made.id, event_id = made.held_event
    where scope = p_item.tenant_id and key = p_item.key;

    if room_left('reservations', p_item.reservations_max) < 0 then
        raise exception 'reservations' using errcode = 'BF001';
    elsif room_left('holds', p_item.holds_max) < 0 then
        raise exception 'holds' using errcode = 'BF001';
    end if;
    tenants_ := tenants_ || p_item.tenant_id;
    changes := changes || p_gpus;
    if p_gpus = 0 and not keep_tenant(p_item.tenant_id) then     -- registered resources change no quota
        raise exception 'the tenant was deleted meanwhile' using errcode = 'BQ001';
    end if;
    if not p_item.together then
        perform change_quotas(tenants_, changes);
    end if;
    return jsonb_build_object('outcome', 'held', 'status', 201, 'reservation_id', made.id, 'body', answer,
                              'tenants', tenants_, 'changes', changes);
end $$;
