-- Holds units, all or nothing, and answers what became of it (`outcome`):
--   held          status, body; everything is written, the operation included; what tenants use more or less: tenants, changes
--   existing      the key was used before: fingerprint, status, body
--   in_progress   its first use has just ended without effect
--   busy          conflicts: what of the caller's own is in the way
--   not_found, out_of_service   names, and reason;   window: detail;   tenant: it is suspended
--   quota         gpus_used, gpus_limit
--   no_room       placement found no room (without `wait`: none on a node that nobody has locked)
--   again         the world moved between the look and the lock
-- `picks` brings nodes and slots of a SKU that were found free in the window, [{node, mask}, ...], a claim each; they come as
-- `slots` too, and are looked at as any named slots are. Without `wait` they are not waited for either. `together`: one of a
-- list, see `hold_together`, which also settles its quota.
-- Everything but `held` leaves nothing behind. It looks before it locks, so that losers wait for nobody and write nothing;
-- then it locks, and looks again with the clock of that moment. A hold of somebody else's that is past its deadline by
-- then and in the way ends here, with its event, as by any sweeper.
-- Raises BF001 (the message names the table) when a bound is reached, BQ001 when the quota moved.
create or replace function hold_once(p_item jsonb) returns jsonb language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
declare
    item      record;
    found_    record;
    answer    jsonb;
    stamp     timestamptz;
    starts    timestamptz;
    until     timestamptz;
    window_   tstzrange;
    nodes_    uuid[];
    units_    int8multirange[];
    seats     text[];
    seat_units int8multirange[];
    wanted    int8multirange;
    gpus_     integer;
    chosen    text[];
    overdue   uuid[] := '{}';
    due       uuid[] := '{}';
    far_nodes uuid[];
    far_seats text[];
    tenants_  uuid[] := '{}';
    changes   integer[] := '{}';
    position_ bigint;
    made      reservations;
    claims_   jsonb;
    told      text;
begin
    select * into item from jsonb_to_record(p_item) as i(
        tenant_id uuid, key text, fingerprint text, retire_seconds float8, correlation_id uuid, request_id text,
        actor_kind text, holder_id text, name text, template jsonb, starts_at timestamptz, ends_at timestamptz,
        ttl_seconds float8, window_seconds_max float8, retention_seconds float8, shard bigint,
        reservations_max bigint, holds_max bigint,
        resources text[], nodes uuid[], slots jsonb, registered text[],
        sku text, gpus integer, region text, quantity integer, pool_id integer, shape text, classes smallint[],
        lows smallint[], highs smallint[], wait boolean, picks jsonb, together boolean);
    item.together := coalesce(item.together, false);  -- null and a look that locks: the look would be taken to settle it
    answer := told_before(item.tenant_id, item.key);
    if answer is not null then
        return answer;
    end if;

    for look in 1..2 loop
        if look = 2 then
            insert into operations (scope, key, fingerprint, retire_after)
            values (item.tenant_id, item.key, decode(item.fingerprint, 'hex'),
                    clock_timestamp() + make_interval(secs => item.retire_seconds))
            on conflict do nothing;
            if not found then
                return coalesce(told_before(item.tenant_id, item.key), '{"outcome": "in_progress"}');
            end if;
            if (item.together or item.picks is not null and not item.wait) and (
                select count(*) from (select from nodes n where n.id = any (nodes_ || far_nodes)
                                      order by n.id for no key update skip locked) locked
            ) < (select count(distinct id) from unnest(nodes_ || far_nodes) wanted(id)) then
                delete from operations where scope = item.tenant_id and key = item.key and status is null;
                return '{"outcome": "again"}';
            end if;
            perform from nodes n where n.id = any (nodes_ || far_nodes) order by n.id for no key update;
            if item.together and (
                (select count(*) from (select from resources r where r.id = any (seats || far_seats)
                                       order by r.id for no key update skip locked) locked)
                + (select count(*) from (select from reservations r where r.id = any (overdue)
                                         order by r.id for no key update skip locked) locked)
            ) < (select count(distinct id) from unnest(seats || far_seats) wanted(id)) + cardinality(overdue) then
                delete from operations where scope = item.tenant_id and key = item.key and status is null;
                return '{"outcome": "again"}';
            end if;
            if cardinality(seats || far_seats) > 0 then
                perform from resources r where r.id = any (seats || far_seats) order by r.id for no key update;
            end if;
            if cardinality(overdue) > 0 then
                perform from reservations r where r.id = any (overdue) order by r.id for no key update;
            end if;
        end if;

        stamp := clock_timestamp();
        starts := greatest(item.starts_at, stamp);
        answer := case
            when item.ends_at <= stamp then '{"outcome": "window", "detail": "the window is over"}'
            when item.ends_at <= coalesce(item.starts_at, stamp) then
                '{"outcome": "window", "detail": "the window ends before it begins"}'
            when starts > stamp + make_interval(secs => item.window_seconds_max) then
                '{"outcome": "window", "detail": "the window begins too far away"}'
            when item.ends_at > starts + make_interval(secs => item.window_seconds_max) then
                '{"outcome": "window", "detail": "the window is too long; leave ends_at out for an open end"}'
        end::jsonb;
        if answer is null and not exists (select from tenants t where t.id = item.tenant_id and t.state = 'active' and t.depleted_at is null) then
            answer := jsonb_build_object('outcome', case when exists (
                select from tenants t where t.id = item.tenant_id and t.state = 'active') then 'depleted' else 'tenant' end);
        end if;
        window_ := case when answer is null then tstzrange(starts, item.ends_at) end;

        if answer is null and item.pool_id is not null and item.picks is null then
            gpus_ := item.gpus * item.quantity;
            if look = 2 then
                select array_agg(c.node_id), array_agg(c.units) into nodes_, units_
                from choose_by_mask(item.pool_id, item.shape, item.gpus, item.quantity, item.classes, item.lows,
                                    item.highs, item.wait) c;
                if nodes_ is null then
                    answer := '{"outcome": "no_room"}';
                elsif nodes_[1] is null then
                    answer := '{"outcome": "again"}';
                else
                    stamp := clock_timestamp();              -- it may have waited for its nodes
                    starts := greatest(item.starts_at, stamp);
                    if item.ends_at <= stamp then
                        answer := '{"outcome": "window", "detail": "the window is over"}';
                    else
                        window_ := tstzrange(starts, item.ends_at);
                    end if;
                end if;
            end if;
            nodes_ := coalesce(nodes_, '{}');
            seats := '{}';
            far_nodes := '{}';
            far_seats := '{}';
        elsif answer is null then
            with named as materialized (
                select * from named_units(item.nodes, item.slots, item.registered)
            ), held as (
                select n.node_id, n.resource_id, range_agg(n.part) as units from named n group by 1, 2
            )
            select array_agg(n.name) filter (where n.node_id is null and n.resource_id is null) as missing,
                   min(n.stopped) as stopped, min(n.stopped_now) as stopped_now,
                   array_agg(n.name) filter (where n.stopped is not null) as stopped_names,
                   array_agg(n.name) filter (where n.stopped_now is not null) as stopped_now_names,
                   range_agg(n.part) as wanted,
                   (select array_agg(h.node_id order by h.node_id) from held h where h.node_id is not null) as nodes,
                   (select array_agg(h.units order by h.node_id) from held h where h.node_id is not null) as units,
                   (select array_agg(h.resource_id order by h.resource_id) from held h where h.resource_id is not null) as seats,
                   (select array_agg(h.units order by h.resource_id) from held h where h.resource_id is not null) as seat_units,
                   (select sum(upper(part) - lower(part)) from held h, unnest(h.units) part where h.node_id is not null) as gpus
            into found_ from named n;
            if found_.missing is not null then
                answer := jsonb_build_object('outcome', 'not_found', 'names', found_.missing);
            elsif found_.stopped is not null then
                answer := jsonb_build_object('outcome', 'out_of_service', 'names', found_.stopped_names,
                                             'reason', found_.stopped);
            elsif found_.stopped_now is not null and starts <= stamp then
                answer := jsonb_build_object('outcome', 'out_of_service', 'names', found_.stopped_now_names,
                                             'reason', found_.stopped_now);
            else
                nodes_ := coalesce(found_.nodes, '{}');
                units_ := coalesce(found_.units, '{}');
                seats := coalesce(found_.seats, '{}');
                seat_units := coalesce(found_.seat_units, '{}');
                wanted := found_.wanted;
                gpus_ := coalesce(found_.gpus, 0);

                select coalesce(bool_or(not r.overdue), false) as busy,
                       coalesce(array_agg(r.owner_id order by r.owner_id) filter (where r.overdue), '{}') as due,
                       coalesce(jsonb_agg(r.owner_kind || 's/' || r.owner_id order by r.owner_id)
                                filter (where not r.overdue and r.tenant_id = item.tenant_id), '[]') as conflicts
                into found_ from rivals_for(nodes_, seats, wanted, window_, stamp) r;
                due := found_.due;
                if found_.busy then
                    answer := jsonb_build_object('outcome', 'busy', 'conflicts', found_.conflicts);
                elsif look = 1 then
                    overdue := due;
                    select coalesce(array_agg(c.node_id) filter (where c.node_id is not null), '{}'),
                           coalesce(array_agg(c.resource_id) filter (where c.resource_id is not null), '{}')
                    into far_nodes, far_seats
                    from claims c where cardinality(due) > 0 and c.owner_id = any (due) and c.closed_at is null;
                elsif not due <@ overdue or exists (
                    select from claims c where c.owner_id = any (due) and c.closed_at is null
                    and (c.node_id is null or c.node_id <> all (nodes_ || far_nodes))
                    and (c.resource_id is null or c.resource_id <> all (seats || far_seats))
                ) then
                    answer := '{"outcome": "again"}';
                end if;
            end if;
        end if;

        if answer is null and gpus_ > 0 then
            -- What ends here gives back its part. Each is looked up: a plan made over an empty table would read all of it.
            select q.gpus_used - coalesce((
                select sum(r.gpus_held) from unnest(due) one(id)
                cross join lateral (select tenant_id, gpus_held from reservations where id = one.id offset 0) r
                where r.tenant_id = item.tenant_id), 0) as used, q.gpus_limit
            into found_ from tenant_quotas q where q.tenant_id = item.tenant_id;
            if found_.used + gpus_ > found_.gpus_limit then
                answer := jsonb_build_object('outcome', 'quota', 'gpus_used', found_.used, 'gpus_limit', found_.gpus_limit);
            end if;
        end if;
        if answer is not null then
            if look = 2 then
                delete from operations where scope = item.tenant_id and key = item.key and status is null;
            end if;
            return answer;
        end if;
    end loop;

    if item.picks is not null then
        select array_agg(n.id order by p.nth), array_agg(mask_to_units(n.unit_base, (p.pick ->> 'mask')::bigint) order by p.nth)
        into nodes_, units_
        from jsonb_array_elements(item.picks) with ordinality as p(pick, nth)
        join nodes n on n.id = (p.pick ->> 'node')::uuid;
    end if;

    if cardinality(due) > 0 then
        select e.tenants, e.changes into tenants_, changes from expire_holds(due, stamp, item.retention_seconds) e;
    end if;

    until := least(stamp + make_interval(secs => item.ttl_seconds), item.ends_at);
    position_ := nextval('reservation_positions');
    made.id := reservation_id(item.shard, position_);
    with put as (
        insert into claims (node_id, resource_id, tenant_id, owner_kind, owner_id, units, during, fence)
        select n.node_id, null, item.tenant_id, 'reservation', made.id, n.units, window_, nextval('fences')
        from unnest(nodes_, units_) as n(node_id, units)
        union all
        select null, s.resource_id, item.tenant_id, 'reservation', made.id, s.units, window_, nextval('fences')
        from unnest(seats, seat_units) as s(resource_id, units)
        returning id, node_id, resource_id, units, fence
    )
    select jsonb_agg(jsonb_build_object(
        'node_id', p.node_id, 'resource_id', p.resource_id, 'fence', p.fence,
        'units', (select jsonb_agg(jsonb_build_array(lower(part), upper(part)) order by part) from unnest(p.units) part)
    ) order by p.id) into claims_ from put p;
    if item.pool_id is not null then
        select array_agg(case when item.shape = 'baremetal' then 'node:' || c.node_id
                              else 'slot:' || c.node_id || ':' || c.unit - n.unit_base end order by c.nth, c.unit)
        into chosen
        from (select h.node_id, h.nth, generate_series(lower(part), upper(part) - 1) as unit
              from unnest(nodes_, units_) with ordinality as h(node_id, units, nth), unnest(h.units) part) c
        join nodes n on n.id = c.node_id
        where item.shape <> 'baremetal' or c.unit = n.unit_base;
    end if;

    insert into reservations (id, position, tenant_id, holder_id, resources, sku, gpus, region, quantity, gpus_held,
        starts_at, ends_at, hold_until, expires_at, template, name, operation_key, operation_fingerprint, correlation_id,
        held_at, held_event, waits_for, waits_since, waits_until)
    values (made.id, position_, item.tenant_id, item.holder_id, coalesce(chosen, item.resources), item.sku, item.gpus,
        item.region, coalesce(item.quantity, 1), gpus_, starts, item.ends_at, until, until, item.template, item.name,
        item.key, decode(item.fingerprint, 'hex'), item.correlation_id, stamp, uuidv7(), 'holder', stamp, until)
    returning * into made;
    insert into outbox (event_id, event_type, correlation_id, tenant_id, subject, operation_key, request_id, payload)
    values (made.held_event, 'reservation.held', made.correlation_id, made.tenant_id, 'reservations/' || made.id,
        made.operation_key, item.request_id,
        jsonb_build_object('reservation_id', made.id, 'holder_id', made.holder_id, 'judged_at', rfc3339(stamp),
            'claims', claims_, 'sku', made.sku, 'gpus', made.gpus, 'region', made.region,
            'count', case when made.sku is not null then made.quantity end, 'resources', to_jsonb(made.resources),
            'gpus_held', made.gpus_held, 'starts_at', rfc3339(made.starts_at), 'ends_at', rfc3339(made.ends_at),
            'hold_until', rfc3339(made.hold_until)));
    perform refresh_node_fit(n.id) from (select distinct unnest(nodes_) as id) n;
    if cardinality(seats) > 0 then
        update resources set row_version = row_version + 1 where id = any (seats);
    end if;
    told := first_reservation_body(made)::text;
    update operations set status = 201, code = 'ok', body = told, subject_id = made.id
    where scope = item.tenant_id and key = item.key;

    if room_left('reservations', item.reservations_max) < 0 then
        raise exception 'reservations' using errcode = 'BF001';
    elsif room_left('holds', item.holds_max) < 0 then
        raise exception 'holds' using errcode = 'BF001';
    end if;
    if not coalesce(item.together, false) then
        perform change_quotas(tenants_ || item.tenant_id, changes || gpus_);
    end if;
    return jsonb_build_object('outcome', 'held', 'status', 201, 'reservation_id', made.id, 'body', told,
                              'tenants', tenants_ || item.tenant_id, 'changes', changes || gpus_);
end $$;
