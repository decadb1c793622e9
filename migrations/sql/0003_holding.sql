-- Holding: reservations as clients see them, the one door through which their state changes, and the hold itself in one
-- server-side call (DESIGN §4, §5). Lock order everywhere: operation key, nodes by id, resources by id, reservations by
-- id, claims, and tenants' quotas last, in their order.

create function rfc3339(p_time timestamptz) returns text language sql stable strict as $$
    select to_char(p_time at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;

-- What clients are told of a reservation. The versions are those of its events in the log; null: not sequenced yet.
create function reservation_body(r reservations, p_created bigint, p_released bigint, p_result text)
returns json language sql stable as $$
    select json_build_object('reservation_id', r.id, 'tenant_id', r.tenant_id, 'holder_id', r.holder_id, 'status', r.state,
        'result', p_result, 'resources', to_json(r.resources), 'sku', r.sku, 'gpus', r.gpus, 'region', r.region,
        'count', case when r.sku is not null then r.quantity end, 'gpus_held', r.gpus_held,
        'starts_at', rfc3339(r.starts_at), 'ends_at', rfc3339(r.ends_at), 'expires_at', rfc3339(r.expires_at),
        'held_at', rfc3339(r.held_at), 'confirmed_at', rfc3339(r.confirmed_at), 'ended_at', rfc3339(r.ended_at),
        'retire_after', rfc3339(r.retire_after), 'created_version', p_created, 'released_version', p_released,
        'waits', case when r.waits_for is not null then json_build_object(
            'for', r.waits_for, 'since', rfc3339(r.waits_since), 'until', rfc3339(r.waits_until)) end,
        'failure', case when r.failure_code is not null then json_build_object(
            'code', r.failure_code, 'detail', r.failure_detail) end,
        'allocation', r.template, 'name', r.name, 'correlation_id', r.correlation_id, 'row_version', r.row_version)
$$;

-- The same with the versions that its events have in the log by now. Not in SQL: that would be planned at each call, for
-- every partition of the log (docs/performance.md).
create function reservation_answer(r reservations, p_result text) returns json language plpgsql stable as $$
declare
    created  bigint;
    released bigint;
begin
    select l.version into created from log l where l.event_id = r.held_event;
    if r.ended_event is not null then
        select l.version into released from log l where l.event_id = r.ended_event;
    end if;
    return reservation_body(r, created, released, p_result);
end $$;

-- What its holder was told first, however far it has come since.
create function first_reservation_body(r reservations) returns json language plpgsql stable as $$
begin
    r.state := 'hold';
    r.row_version := 1;
    r.expires_at := r.hold_until;
    r.confirmed_at := null;
    r.ended_at := null;
    r.retire_after := null;
    r.failure_code := null;
    r.waits_for := 'holder';
    r.waits_since := r.held_at;
    r.waits_until := r.hold_until;
    return reservation_body(r, null, null, 'ok');
end $$;

-- The one door. Null if the reservation is not as the caller locked it. `p_judged_at` is the clock by which the caller
-- judged, after its locks: whoever replays the log judges by it too.
create function advance_reservation(
    p_id uuid, p_from text, p_row_version bigint, p_to text, p_event_type text, p_payload jsonb, p_judged_at timestamptz,
    p_retention_seconds float8, p_operation_key text, p_request_id text
) returns bigint language plpgsql set enable_seqscan = off as $$
declare
    event uuid := uuidv7();
    moved reservations;
begin
    update reservations r set
        state = p_to,
        row_version = r.row_version + 1,
        expires_at = case when p_to = 'expired' then r.expires_at end,
        confirmed_at = case when p_to = 'confirmed' then p_judged_at else r.confirmed_at end,
        ended_at = case when p_to <> 'confirmed' then p_judged_at end,
        ended_event = case when p_to <> 'confirmed' then event end,
        retire_after = case when p_to <> 'confirmed' then p_judged_at + make_interval(secs => p_retention_seconds) end,
        waits_for = case when p_to = 'confirmed' then 'window' end,
        waits_since = case when p_to = 'confirmed' then p_judged_at end,
        waits_until = case when p_to = 'confirmed' then case when r.template is not null then r.starts_at else r.ends_at end end
    where r.id = p_id and r.state = p_from and r.row_version = p_row_version
    returning * into moved;
    if not found then
        return null;
    end if;
    insert into outbox (event_id, event_type, correlation_id, tenant_id, subject, operation_key, request_id, payload)
    values (event, p_event_type, moved.correlation_id, moved.tenant_id, 'reservations/' || moved.id, p_operation_key,
            p_request_id,
            jsonb_build_object('reservation_id', moved.id, 'holder_id', moved.holder_id, 'judged_at', rfc3339(p_judged_at))
            || p_payload);
    return moved.row_version;
end $$;

-- As before, with a plan that lasts: in SQL it was planned at each call, which cost four times what it does.
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

-- A resource's `row_version` is what is stored and what has passed since: one for each step that a reservation's open claim
-- has gone by itself (its window began, it was confirmed, its window is over). When such a claim goes, or becomes another's,
-- all of these go with it; this adds one more than they can be, so that what is shown only ever grows.
create function outgrow_claim(p_node uuid, p_resource text) returns void language plpgsql set enable_seqscan = off as $$
begin
    update nodes set row_version = row_version + 4 where id = p_node;
    update resources set row_version = row_version + 4 where id = p_resource;
end $$;

-- Likewise where somebody must act, or need not any more: units of an ended right change their state, and nothing of the
-- node does. Whoever changes a claim has its node's lock.
create function outgrow_blocked_claim() returns trigger language plpgsql as $$
begin
    update nodes set row_version = row_version + 1 where id = new.node_id;
    return null;
end $$;
create trigger claim_blocked after update of waits_for on claims for each row
    when (new.node_id is not null and coalesce(old.waits_for in ('operator', 'force_release'), false)
                                      is distinct from coalesce(new.waits_for in ('operator', 'force_release'), false))
    execute function outgrow_blocked_claim();

-- Ends the right to everything that a reservation still holds; nothing can be on it. The caller has locked its nodes,
-- resources and itself.
create function close_reservation_claims(p_id uuid) returns void language plpgsql set enable_seqscan = off as $$
declare
    gone record;
    last_node uuid;
begin
    for gone in
        with closed as (
            update claims set booked = false, closed_at = clock_timestamp(), fence = nextval('fences')
            where owner_id = p_id and owner_kind = 'reservation' and closed_at is null
            returning node_id, resource_id
        ) select node_id, resource_id from closed order by node_id, resource_id
    loop
        perform outgrow_claim(gone.node_id, gone.resource_id);
        if gone.node_id is distinct from last_node then
            perform refresh_node_fit(gone.node_id);
            last_node := gone.node_id;
        end if;
    end loop;
end $$;

-- Named resources: which units they are, and why they cannot be had: `stopped` at any time, `stopped_now` at this moment.
-- Neither a node nor a resource: there is none.
create function named_units(p_nodes uuid[], p_slots jsonb, p_registered text[])
returns table (name text, node_id uuid, resource_id text, part int8range, stopped text, stopped_now text)
language sql stable as $$
    select 'node:' || a.id, n.id, null::text, int8range(n.unit_base, n.unit_base + n.slot_count),
           case when n.state <> 'active' then 'the node is ' || n.state
                else (select min(coalesce(s.reason, 'a slot is out of service')) from slots s
                      where s.node_id = n.id and s.state = 'out_of_service') end,
           case when not n.online then 'the node is offline' end
    from unnest(p_nodes) a(id) left join nodes n on n.id = a.id and n.state <> 'retired'
    union all
    select 'slot:' || a.node || ':' || a.index, n.id, null, int8range(s.unit, s.unit + 1),
           case when n.state <> 'active' then 'the node is ' || n.state
                when s.state = 'out_of_service' then coalesce(s.reason, 'the slot is out of service') end,
           case when not n.online then 'the node is offline' end
    from jsonb_to_recordset(p_slots) a(node uuid, index integer)
    left join slots s on s.node_id = a.node and s.slot_index = a.index
    left join nodes n on n.id = s.node_id and n.state <> 'retired'
    union all
    select a.id, null, r.id, int8range(r.unit, r.unit + 1),
           case when r.state = 'out_of_service' then coalesce(r.reason, 'it is out of service') end, null
    from unnest(p_registered) a(id) left join resources r on r.id = a.id
$$;

-- Who has a right to some of these units in that window, or may still be on them although it begins now. `overdue`: a hold
-- past its deadline, which whoever needs the units may end.
create function rivals_for(p_nodes uuid[], p_resources text[], p_units int8multirange, p_window tstzrange, p_now timestamptz)
returns table (owner_kind text, owner_id uuid, tenant_id uuid, overdue boolean) language sql stable as $$
    select distinct c.owner_kind, c.owner_id, c.tenant_id, coalesce(r.state = 'hold' and r.expires_at <= p_now, false)
    from (
        select * from claims where closed_at is null and node_id = any (p_nodes)
        union all
        select * from claims where closed_at is null and resource_id = any (p_resources)
    ) c
    left join reservations r on c.owner_kind = 'reservation' and r.id = c.owner_id
    where c.units && p_units and (c.booked and c.during && p_window or c.occupied and lower(p_window) <= p_now)
$$;

-- Placement for holds from now on: locks nodes of the pool by their materialised fit, best class first, until `p_count`
-- claims of `p_gpus` slots have their place; several may lie on one node. No rows: there is no room.
-- Never waits, unless `p_wait`: then it looks first, locks what it found in order, and takes it only if it is unchanged;
-- otherwise it answers one row of nulls.
create function choose_by_mask(
    p_pool integer, p_shape text, p_gpus integer, p_count integer, p_classes smallint[], p_lows smallint[],
    p_highs smallint[], p_wait boolean
) returns table (node_id uuid, units int8multirange) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
declare
    held   uuid[] := '{}';
    bases  bigint[] := '{}';
    halves smallint[] := '{}';
    masks  bigint[] := '{}';
    seen   bigint[] := '{}';
    class_ integer[] := '{}';
    known  integer;
    place_ integer;
    found_ record;
    picked bigint;
    picks  bigint[] := '{}';
    spots  integer[] := '{}';
begin
    for claim in 1..p_count loop
        known := null;
        place_ := cardinality(p_classes) + 1;
        select h.k, array_position(p_classes, h.class::smallint) as place into found_
        from unnest(class_) with ordinality as h(class, k)
        where array_position(p_classes, h.class::smallint) is not null order by 2, 1 limit 1;
        if found_.k is not null then
            known := found_.k;
            place_ := found_.place;
        end if;
        if place_ > 1 then
            if p_wait then
                select n.*, c.place into found_
                from unnest(p_classes[1:place_ - 1]) with ordinality as c(class, place)
                cross join lateral (
                    select id, unit_base, free_mask, half_slots from nodes
                    where pool_id = p_pool and fit_class = c.class and state = 'active' and online
                      and (p_shape = 'gpu_slice' or slot_count = p_gpus) and id <> all (held)
                    order by placement_rank, id limit 1
                ) n order by c.place limit 1;
            else
                select n.*, c.place into found_
                from unnest(p_classes[1:place_ - 1]) with ordinality as c(class, place)
                cross join lateral (
                    select id, unit_base, free_mask, half_slots from nodes
                    where pool_id = p_pool and fit_class = c.class and state = 'active' and online
                      and (p_shape = 'gpu_slice' or slot_count = p_gpus) and id <> all (held)
                    order by placement_rank, id limit 1 for no key update skip locked
                ) n order by c.place limit 1;
            end if;
            if found_.id is not null then
                known := cardinality(held) + 1;
                place_ := found_.place;
                held[known] := found_.id;
                bases[known] := found_.unit_base;
                halves[known] := found_.half_slots;
                masks[known] := found_.free_mask;
                seen[known] := found_.free_mask;
                class_[known] := p_classes[place_];
            end if;
        end if;
        if known is null then
            return;
        end if;
        picked := lowest_bits(masks[known] & ((1::bigint << halves[known]) - 1), p_lows[place_])
                | (lowest_bits(masks[known] >> halves[known], p_highs[place_]) << halves[known]);
        masks[known] := masks[known] & ~picked;
        class_[known] := class_[known] - p_lows[place_] * 64 - p_highs[place_];
        picks := picks || picked;
        spots := spots || known;
    end loop;
    if p_wait then
        perform from nodes n where n.id = any (held) order by n.id for no key update;
        perform from unnest(held, seen) h(id, mask) join nodes n on n.id = h.id
        where n.free_mask <> h.mask or n.state <> 'active' or not n.online;
        if found then
            return query select null::uuid, null::int8multirange;
            return;
        end if;
    end if;
    return query select held[p.spot], mask_to_units(bases[p.spot], p.picked) from unnest(spots, picks) as p(spot, picked);
end $$;

-- The creation that was made under a key and still stands, however long its operation has been retired: it never runs
-- twice. The body is what its first answer said.
create or replace function standing_creation(p_scope uuid, p_key text)
returns table (fingerprint bytea, status smallint, body text, subject_id uuid) language sql stable as $$
    select a.operation_fingerprint, 201::smallint, creation_body(a)::text, a.id
    from allocations a where a.tenant_id = p_scope and a.operation_key = p_key
    union all
    select r.operation_fingerprint, 201::smallint, first_reservation_body(r)::text, r.id
    from reservations r where r.tenant_id = p_scope and r.operation_key = p_key
$$;

-- What the creation that was made under a key, and still stands, was told first.
create function standing_answer(p_scope uuid, p_key text) returns jsonb language plpgsql stable set enable_seqscan = off as $$
declare
    stored record;
begin
    select s.fingerprint, s.status, s.body into stored from standing_creation(p_scope, p_key) s;
    if not found then
        return null;
    end if;
    return jsonb_build_object('outcome', 'existing', 'status', stored.status, 'body', stored.body,
                              'fingerprint', encode(stored.fingerprint, 'hex'));
end $$;

-- What the key of a hold was told before, if it was.
create function told_before(p_scope uuid, p_key text) returns jsonb language plpgsql stable set enable_seqscan = off as $$
declare
    stored record;
begin
    select o.fingerprint, o.status, o.body into stored from operations o where o.scope = p_scope and o.key = p_key;
    if not found then
        return standing_answer(p_scope, p_key);
    end if;
    return jsonb_build_object('outcome', 'existing', 'status', stored.status, 'body', stored.body,
                              'fingerprint', encode(stored.fingerprint, 'hex'));
end $$;

-- What tenants use more or less, in the order in which quotas are locked. Raises BQ001 if one would be passed.
create function change_quotas(p_tenants uuid[], p_changes integer[]) returns void language plpgsql set enable_seqscan = off as $$
declare
    one record;
begin
    for one in select t.id, sum(t.gpus)::integer as gpus from unnest(p_tenants, p_changes) t(id, gpus)
               group by t.id order by t.id loop
        if one.gpus <> 0 then
            update tenant_quotas q set gpus_used = q.gpus_used + one.gpus, row_version = q.row_version + 1
            where q.tenant_id = one.id
              and (one.gpus < 0 or q.gpus_limit is null or q.gpus_used + one.gpus <= q.gpus_limit);
            if not found then
                raise exception 'the quota of % moved meanwhile', one.id using errcode = 'BQ001';
            end if;
        end if;
    end loop;
end $$;

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
create function hold_once(p_item jsonb) returns jsonb language plpgsql
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
        if answer is null and not exists (select from tenants t where t.id = item.tenant_id and t.state = 'active') then
            answer := '{"outcome": "tenant"}';
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
        for found_ in select r.* from reservations r where r.id = any (due) order by r.id loop
            perform advance_reservation(found_.id, 'hold', found_.row_version, 'expired', 'reservation.expired',
                jsonb_build_object('deadline', rfc3339(found_.expires_at), 'actor_kind', 'system'), stamp,
                item.retention_seconds, null, null);
            perform close_reservation_claims(found_.id);
            tenants_ := tenants_ || found_.tenant_id;
            changes := changes || -found_.gpus_held;
        end loop;
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

-- Holds for a list, each as if it were alone, in the order of their keys, and answers them in the order of the list. None of
-- them waits for a rival's lock except for its key's, so lists cannot wait for each other in a circle: one that would have to
-- wait is answered `again` and is for its caller to repeat alone. Quotas come last, all together. Raises what `hold_once` raises, for the list as a whole.
create function hold_together(p_items jsonb) returns jsonb language plpgsql as $$
declare
    item     record;
    answer   jsonb;
    answers  jsonb[] := array_fill(null::jsonb, array[jsonb_array_length(p_items)]);
    tenants_ uuid[] := '{}';
    changes  integer[] := '{}';
begin
    for item in select i.one, i.n from jsonb_array_elements(p_items) with ordinality i(one, n)
                order by i.one ->> 'tenant_id', i.one ->> 'key' collate "C" loop
        answer := hold_once(item.one || '{"together": true}');
        answers[item.n] := answer;
        if answer ->> 'outcome' = 'held' then
            tenants_ := tenants_ || array(select jsonb_array_elements_text(answer -> 'tenants')::uuid);
            changes := changes || array(select jsonb_array_elements_text(answer -> 'changes')::integer);
        end if;
    end loop;
    perform change_quotas(tenants_, changes);
    return to_jsonb(answers);
end $$;

-- Confirms a hold for its holder, under its operation key and its own lock alone, as its claims stay what they are.
-- Answers `outcome`: ok, noop (status, body), with which everything is written, the operation included; existing, in_progress
-- as `hold_once` does; missing, holder, state (with state), and overdue: its deadline has passed by the clock after the
-- lock. These leave nothing behind.
create function confirm_once(
    p_tenant uuid, p_key text, p_fingerprint bytea, p_retire_seconds float8, p_id uuid, p_holder text, p_request_id text, p_together boolean
) returns jsonb language plpgsql set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
    found_ reservations;
    stamp  timestamptz;
    done   text := 'ok';
    answer jsonb;
begin
    insert into operations (scope, key, fingerprint, ending, retire_after)
    values (p_tenant, p_key, p_fingerprint, true, clock_timestamp() + make_interval(secs => p_retire_seconds))
    on conflict do nothing;
    if not found then
        return coalesce(told_before(p_tenant, p_key), '{"outcome": "in_progress"}');
    end if;
    answer := standing_answer(p_tenant, p_key);
    if answer is null and p_together then
        perform from reservations r where r.id = p_id and r.tenant_id = p_tenant for no key update skip locked;
        if not found and exists (select from reservations r where r.id = p_id and r.tenant_id = p_tenant) then
            answer := '{"outcome": "again"}';
        elsif not found then
            answer := '{"outcome": "missing"}';
        end if;
    elsif answer is null then
        perform from reservations r where r.id = p_id and r.tenant_id = p_tenant for no key update;
        if not found then
            answer := '{"outcome": "missing"}';
        end if;
    end if;
    if answer is null then
        stamp := clock_timestamp();
        select * into found_ from reservations r where r.id = p_id;
        if found_.holder_id <> p_holder then
            answer := '{"outcome": "holder"}';
        elsif found_.state = 'confirmed' then
            done := 'noop';
        elsif found_.state <> 'hold' then
            answer := jsonb_build_object('outcome', 'state', 'state', found_.state);
        elsif found_.expires_at <= stamp then
            answer := '{"outcome": "overdue"}';
        else
            perform advance_reservation(p_id, 'hold', found_.row_version, 'confirmed', 'reservation.confirmed',
                                        '{"actor_kind": "tenant"}', stamp, 0, p_key, p_request_id);
            select * into found_ from reservations r where r.id = p_id;
        end if;
    end if;
    if answer is not null then
        delete from operations where scope = p_tenant and key = p_key and status is null;
        return answer;
    end if;
    answer := jsonb_build_object('outcome', done, 'status', 200, 'body', reservation_answer(found_, done)::text);
    update operations set status = 200, code = done, body = answer ->> 'body', subject_id = p_id
    where scope = p_tenant and key = p_key;
    return answer;
end $$;

-- Confirms for a list, each as if it were alone, in the order of their keys; answers in the order of the list. As in
-- `hold_together`, one that would have to wait for a rival's lock is answered `again`.
create function confirm_together(p_items jsonb) returns jsonb language plpgsql as $$
declare
    item    record;
    answers jsonb[] := array_fill(null::jsonb, array[jsonb_array_length(p_items)]);
begin
    for item in select i.* from rows from (jsonb_to_recordset(p_items) as (tenant_id uuid, key text, fingerprint text,
                    retention_seconds float8, id uuid, holder_id text, request_id text)) with ordinality
                as i(tenant_id, key, fingerprint, retention_seconds, id, holder_id, request_id, n)
                order by i.tenant_id, i.key collate "C" loop
        answers[item.n] := confirm_once(item.tenant_id, item.key, decode(item.fingerprint, 'hex'), item.retention_seconds,
                                        item.id, item.holder_id, item.request_id, true);
    end loop;
    return to_jsonb(answers);
end $$;
