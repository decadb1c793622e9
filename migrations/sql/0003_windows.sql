-- Placement over windows (DESIGN §5): which slots of a node nobody has a right to between two moments. What the materialised
-- fit shows free is free in every window, so only nodes whose claims end, begin later, or may be ended are looked at:
-- those in `claims_windowed`. Closed claims are in no index that is read here, so history costs nothing.

create index claims_windowed on claims (node_id)
where closed_at is null and node_id is not null
  and (owner_kind = 'reservation' or not booked or not upper_inf(during) or lower(during) > created_at);
create index slots_out_of_service on slots (node_id) where state = 'out_of_service';

-- Until when an open claim keeps others from its units, as far as can be said at `p_now`. An occupant whose time is over is
-- not gone at once, so its units are offered from a minute later on; if a person must act, nobody knows when. (Stable and
-- not strict, as the next one is not strict: otherwise they are called for each row instead of becoming part of the query,
-- which costs ten times as much.)
create function blocked_until(
    p_during tstzrange, p_booked boolean, p_occupied boolean, p_waits_until timestamptz, p_now timestamptz
) returns timestamptz language sql stable as $$
    select case when p_booked and upper_inf(p_during) then 'infinity'::timestamptz
                when not p_occupied then upper(p_during)
                when p_booked then greatest(upper(p_during), p_now + interval '1 minute')
                when p_waits_until is null then 'infinity'::timestamptz
                else greatest(p_waits_until, p_now + interval '1 minute') end
$$;

-- The units of a node as a mask over its block. One range is the ordinary case and needs no call of this.
create function scattered_mask(p_base bigint, p_units int8multirange) returns bigint language sql immutable strict as $$
    select bit_or(((1::bigint << (upper(part) - lower(part))::integer) - 1) << (lower(part) - p_base)::integer)
    from unnest(p_units) part
$$;
create function units_to_mask(p_base bigint, p_units int8multirange) returns bigint language sql immutable as $$
    select case when p_units = int8multirange(range_merge(p_units))
                then ((1::bigint << (upper(p_units) - lower(p_units))::integer) - 1) << (lower(p_units) - p_base)::integer
                else scattered_mask(p_base, p_units) end
$$;

-- The nodes of a pool that serve one of `p_classes` throughout the window, best class first, at most `p_limit`; `mask`: the
-- slots that are free all the time. Only nodes of `claims_windowed`. Holds that are past their deadline do not count:
-- whoever takes their units ends them. `p_whole`: nodes of so many slots only (bare metal); null: any.
create function nodes_in_window(
    p_pool integer, p_starts timestamptz, p_ends timestamptz, p_now timestamptz, p_whole integer, p_classes smallint[],
    p_limit integer
) returns table (node_id uuid, unit_base bigint, slot_count smallint, half_slots smallint, placement_rank integer, mask bigint)
language sql stable set enable_seqscan = off set jit = off as $$
    with overdue as materialized (
        select r.id from reservations r where r.state = 'hold' and r.expires_at <= p_now
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

-- Everything that decides what fits in these pools from `p_from` on, packed (a row each would cost more than all the rest):
--   fixed    [[pool, slots of the node, slots of it that are free at any time, how many such nodes], ...]
--   nodes    per node of `claims_windowed`: pool int4, slots int4, mask of those in service int8
--   blocks   per claim on them: place of the node in `nodes` int4, from int8, until int8 (microseconds since 2000), mask int8
create function pools_in_time(p_pools integer[], p_from timestamptz, p_now timestamptz)
returns table (fixed jsonb, nodes bytea, blocks bytea) language sql stable set enable_seqscan = off set jit = off as $$
    with overdue as materialized (
        select r.id from reservations r where r.state = 'hold' and r.expires_at <= p_now
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
         from near n join claims c on c.node_id = n.id
         where c.closed_at is null
           and blocked_until(c.during, c.booked, c.occupied, c.waits_until, p_now) > p_from
           and c.owner_id not in (select o.id from overdue o))
$$;

-- What the client is told of a create, as long as the row exists.
create or replace function creation_body(p_row allocations) returns json language sql stable as $$
    select json_build_object('allocation_id', p_row.id, 'status', 'requested', 'sku', p_row.sku, 'shape', p_row.shape,
        'gpus', p_row.gpus, 'region', p_row.region, 'image', p_row.image, 'name', p_row.name, 'labels', p_row.labels,
        'correlation_id', p_row.correlation_id,
        'ends_at', to_char(p_row.ends_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'requested_at', to_char(p_row.requested_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
$$;

-- Executes what was decided for a list of creates whose keys are in `operations`, all or nothing. Nodes are locked one by
-- one as they are chosen and kept in `held` with their new fit; every table is then written by one statement, because a
-- statement's start costs more than its row (docs/performance.md). The answers are those of `place_allocations`.
-- An item may end by itself (`ends_at`), and may bring the node and the slots that it was given (`node_id`, `mask`; its
-- caller has locked the node and looked at its claims): then no other node is tried.
-- Raises BC001 when a constraint refuses a claim or an allocation (the detail names the nodes), BQ001 when a quota moved.
create or replace function place_together(p_items jsonb, p_quota_first boolean) returns jsonb language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
declare
    item       record;
    answers    jsonb[] := '{}';
    refused    integer[] := '{}';                            -- places in the list whose fresh operation goes again
    tenants_   uuid[] := '{}';                               -- ascending, with what was placed for each
    pending    integer[] := '{}';
    tenant     integer := 0;
    held       uuid[] := '{}';                               -- nodes locked so far, and their fit after what was placed
    held_pool  integer[] := '{}';
    held_base  bigint[] := '{}';
    held_half  smallint[] := '{}';
    held_mask  bigint[] := '{}';
    held_class integer[] := '{}';
    known      integer;                                      -- a held node that would serve, and the place of its class
    place_     integer;
    found_     record;
    picked     bigint;
    placed     integer[] := '{}';                            -- places in the list, and where each was put
    placed_on  integer[] := '{}';
    picks      bigint[] := '{}';
    soonest    timestamptz;                                  -- the first end of what was placed
    stamp_     timestamptz;                                  -- when all of it begins, judged after the locks
    made       jsonb[];
begin
    if p_quota_first then
        perform 1 from tenant_quotas q
        where q.tenant_id = any (array(select (i ->> 'tenant_id')::uuid from jsonb_array_elements(p_items) i))
        order by q.tenant_id for no key update;
    end if;

    for item in
        -- An operation without a status is our own: nobody sees another's before it commits.
        select i.n, i.tenant_id, i.shape, i.gpus, i.pool_id, i.classes, i.lows, i.highs, i.wait,
               i.ends_at, i.window_seconds_max, i.node_id, i.mask, q.gpus_limit, q.gpus_used,
               case
                   when o.scope is null then 'lost'
                   when o.status is not null then 'existing'
                   when t.state is distinct from 'active' then 'tenant'
                   when not exists (select from skus s where s.name = i.sku and s.row_version = i.sku_row_version)
                     or not exists (select from images m where m.name = i.image and m.row_version = i.image_row_version)
                   then 'stale'
                   when (select count(*) from ssh_keys k where k.id = any (i.ssh_key_ids) and k.tenant_id = i.tenant_id)
                     <> cardinality(i.ssh_key_ids) then 'ssh_key'
                   when i.ends_at <= clock_timestamp() then 'window_over'
                   when i.ends_at > clock_timestamp() + make_interval(secs => i.window_seconds_max) then 'window_too_long'
               end as refusal,
               o.status, o.body, o.fingerprint
        from jsonb_to_recordset(p_items) as i(
            n integer, tenant_id uuid, key text, sku text, sku_row_version bigint, shape text, gpus integer,
            pool_id integer, image text, image_row_version bigint, ssh_key_ids uuid[], classes smallint[],
            lows smallint[], highs smallint[], wait boolean, ends_at timestamptz, window_seconds_max float8, node_id uuid,
            mask bigint)
        left join operations o on o.scope = i.tenant_id and o.key = i.key
        left join tenants t on t.id = i.tenant_id
        left join tenant_quotas q on q.tenant_id = i.tenant_id
        order by i.tenant_id, i.n
    loop
        if item.refusal = 'existing' then
            answers := answers || jsonb_build_object('n', item.n, 'outcome', 'existing', 'status', item.status,
                                                     'body', item.body, 'fingerprint', encode(item.fingerprint, 'hex'));
            continue;
        elsif item.refusal is not null then
            answers := answers || jsonb_build_object('n', item.n, 'outcome', item.refusal);
            refused := refused || item.n;
            continue;
        end if;

        if tenant = 0 or tenants_[tenant] <> item.tenant_id then
            tenant := tenant + 1;
            tenants_[tenant] := item.tenant_id;
            pending[tenant] := 0;
        end if;
        if item.gpus_used + pending[tenant] + item.gpus > item.gpus_limit then
            answers := answers || jsonb_build_object('n', item.n, 'outcome', 'quota',
                'gpus_used', item.gpus_used + pending[tenant], 'gpus_limit', item.gpus_limit);
            refused := refused || item.n;
            continue;
        end if;

        -- The best class that a held node is in, then any better class in which an unlocked node is.
        known := null;
        place_ := cardinality(item.classes) + 1;
        if item.node_id is not null then
            place_ := 0;                                     -- its place is decided; nothing is ranked
            select n.id, n.unit_base, n.free_mask, n.half_slots, n.fit_class into found_
            from nodes n where n.id = item.node_id and n.state = 'active' and n.online for no key update;
            if found_.id is not null then
                known := cardinality(held) + 1;
                held[known] := found_.id;
                held_pool[known] := item.pool_id;
                held_base[known] := found_.unit_base;
                held_half[known] := found_.half_slots;
                held_mask[known] := found_.free_mask;
                held_class[known] := found_.fit_class;
            end if;
        elsif item.pool_id = any (held_pool) then
            select h.k, array_position(item.classes, h.class::smallint) as place into found_
            from unnest(held_pool, held_class) with ordinality as h(pool, class, k)
            where h.pool = item.pool_id and array_position(item.classes, h.class::smallint) is not null
            order by 2 limit 1;
            if found_.k is not null then
                known := found_.k;
                place_ := found_.place;
            end if;
        end if;
        if place_ > 1 then
            if item.wait then
                select n.*, c.place into found_
                from unnest(item.classes[1:place_ - 1]) with ordinality as c(class, place)
                cross join lateral (
                    select id, unit_base, free_mask, half_slots from nodes
                    where pool_id = item.pool_id and fit_class = c.class and state = 'active' and online
                      and (item.shape = 'gpu_slice' or slot_count = item.gpus) and id <> all (held)
                    order by placement_rank, id limit 1 for no key update
                ) n order by c.place limit 1;
            else
                select n.*, c.place into found_
                from unnest(item.classes[1:place_ - 1]) with ordinality as c(class, place)
                cross join lateral (
                    select id, unit_base, free_mask, half_slots from nodes
                    where pool_id = item.pool_id and fit_class = c.class and state = 'active' and online
                      and (item.shape = 'gpu_slice' or slot_count = item.gpus) and id <> all (held)
                    order by placement_rank, id limit 1 for no key update skip locked
                ) n order by c.place limit 1;
            end if;
            if found_.id is not null then
                known := cardinality(held) + 1;
                place_ := found_.place;
                held[known] := found_.id;
                held_pool[known] := item.pool_id;
                held_base[known] := found_.unit_base;
                held_half[known] := found_.half_slots;
                held_mask[known] := found_.free_mask;
                held_class[known] := item.classes[place_];
            end if;
        end if;
        if known is null then
            answers := answers || jsonb_build_object('n', item.n, 'outcome', 'no_room');
            refused := refused || item.n;
            continue;
        end if;

        if place_ = 0 then
            picked := item.mask;
            held_mask[known] := held_mask[known] & ~picked;
            held_class[known] := 64 * bit_count((held_mask[known] & ((1::bigint << held_half[known]) - 1))::bit(64))
                               + bit_count((held_mask[known] >> held_half[known])::bit(64));
        else
            picked := lowest_bits(held_mask[known] & ((1::bigint << held_half[known]) - 1), item.lows[place_])
                    | (lowest_bits(held_mask[known] >> held_half[known], item.highs[place_]) << held_half[known]);
            held_mask[known] := held_mask[known] & ~picked;
            held_class[known] := held_class[known] - item.lows[place_] * 64 - item.highs[place_];
        end if;
        pending[tenant] := pending[tenant] + item.gpus;
        soonest := least(soonest, item.ends_at);
        placed := placed || item.n;
        placed_on := placed_on || known;
        picks := picks || picked;
    end loop;

    if cardinality(placed) > 0 then
        stamp_ := clock_timestamp();
        if soonest <= stamp_ then
            raise exception 'a window was over before its turn came'
                using errcode = 'BC001', detail = array_to_string(held, ' ');
        end if;
        begin
            with put as materialized (
                select i.*, held[p.held_at] as node_id, mask_to_units(held_base[p.held_at], p.picked) as units,
                       nextval('fences') as fence, nextval('claims_id_seq') as claim_id, uuidv7() as id,
                       stamp_ as stamp
                from unnest(placed, placed_on, picks) as p(n, held_at, picked)
                join jsonb_to_recordset(p_items) as i(
                    n integer, tenant_id uuid, key text, fingerprint text, correlation_id uuid, request_id text,
                    actor_id text, sku text, shape text, gpu_model text, gpus integer, region text, image text,
                    price_version bigint, name text, labels jsonb, user_data text, ssh_key_ids uuid[],
                    start_seconds float8, ends_at timestamptz) on i.n = p.n
            ), claim as (
                insert into claims (id, node_id, tenant_id, owner_kind, owner_id, units, during, occupied, occupied_from, fence)
                overriding system value
                select claim_id, node_id, tenant_id, 'allocation', id, units, tstzrange(stamp, ends_at), true, stamp, fence from put
            ), allocation as (
                insert into allocations (id, tenant_id, sku, shape, gpu_model, gpus, region, image, price_version, name,
                    labels, user_data, ssh_public_keys, node_id, claim_id, operation_key, operation_fingerprint,
                    correlation_id, requested_at, ends_at, waits_for, waits_since, waits_until)
                select id, tenant_id, sku, shape, gpu_model, gpus, region, image, price_version, name, labels, user_data,
                    (select array_agg(k.public_key order by k.id) from ssh_keys k where k.id = any (ssh_key_ids)),
                    node_id, claim_id, key, decode(fingerprint, 'hex'), correlation_id, stamp, ends_at, 'worker', stamp,
                    stamp + make_interval(secs => start_seconds)
                from put
                returning id, tenant_id, operation_key, creation_body(allocations)::text as body
            ), timeline as (
                insert into allocation_timeline (allocation_id, at, kind, to_state, row_version, actor_kind, actor_id, fence)
                select id, stamp, 'transition', 'requested', 1, 'tenant', actor_id, fence from put
            ), event as (
                insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, operation_key, request_id, payload)
                select 'provisioning.requested', stamp, correlation_id, tenant_id, 'allocations/' || id, key, request_id,
                    jsonb_build_object('allocation_id', id, 'sku', sku, 'shape', shape, 'gpus', gpus, 'region', region,
                                       'ends_at', rfc3339(ends_at), 'node_id', node_id, 'fence', fence)
                from put
            ), operation as (
                update operations o set status = 201, code = 'ok', body = a.body, subject_id = a.id
                from allocation a where o.scope = a.tenant_id and o.key = a.operation_key
                returning o.subject_id, o.body
            )
            select array_agg(jsonb_build_object('n', p.n, 'outcome', 'created', 'allocation_id', p.id, 'status', 201,
                                                'body', o.body))
            into made from put p join operation o on o.subject_id = p.id;
        exception when exclusion_violation or unique_violation then
            raise exception 'these units or this key are taken'
                using errcode = 'BC001', detail = array_to_string(held, ' ');
        end;
        answers := answers || made;
        update nodes set free_mask = h.mask, fit_class = h.class, row_version = row_version + 1
        from unnest(held, held_mask, held_class) as h(id, mask, class) where nodes.id = h.id;
    end if;

    if cardinality(refused) > 0 then
        delete from operations o
        using unnest(refused) as r(n) join jsonb_to_recordset(p_items) as i(n integer, tenant_id uuid, key text) on i.n = r.n
        where o.scope = i.tenant_id and o.key = i.key and o.status is null;
    end if;

    for k in 1..tenant loop
        continue when pending[k] = 0;
        update tenant_quotas set gpus_used = gpus_used + pending[k], row_version = row_version + 1
        where tenant_id = tenants_[k] and (gpus_limit is null or gpus_used + pending[k] <= gpus_limit);
        if not found then
            raise exception 'the quota of % moved meanwhile', tenants_[k] using errcode = 'BQ001';
        end if;
    end loop;
    return to_jsonb(answers);
end $$;

-- Places one create on the node and slots that were found free for its window, claims looked at again under the node's lock.
-- A hold of somebody else's that is past its deadline by then and in the way ends here, with its event. The answers are
-- those of `place_allocations`; `lost`: the world moved meanwhile, and nothing is left behind. Lock order: key, nodes by
-- id, resources by id, reservations by id, quotas in tenant order. Without `wait` a locked node is lost.
create function place_in_window(p_item jsonb) returns jsonb language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
declare
    item    record;
    held    reservations;
    units_  int8multirange;
    stamp   timestamptz;
    busy    boolean;
    overdue uuid[];
    due     uuid[];
    nodes_  uuid[];
    seats   text[];
    answer  jsonb;
begin
    select * into item from jsonb_to_record(p_item) as i(
        n integer, tenant_id uuid, key text, fingerprint text, retire_seconds float8, reservation_retire_seconds float8,
        node_id uuid, mask bigint, ends_at timestamptz, wait boolean);
    insert into operations (scope, key, fingerprint, retire_after)
    values (item.tenant_id, item.key, decode(item.fingerprint, 'hex'),
            clock_timestamp() + make_interval(secs => item.retire_seconds))
    on conflict do nothing;
    if not found then
        return place_together(jsonb_build_array(p_item), false);
    end if;

    stamp := clock_timestamp();
    select mask_to_units(n.unit_base, item.mask) into units_ from nodes n where n.id = item.node_id;
    if item.ends_at is null or item.ends_at > stamp then     -- a window that is over is refused like any other create
        select coalesce(bool_or(not r.overdue), false), coalesce(array_agg(r.owner_id) filter (where r.overdue), '{}')
        into busy, overdue
        from rivals_for(array[item.node_id], '{}', units_, tstzrange(stamp, item.ends_at), stamp) r;
        select array_agg(distinct c.node_id) filter (where c.node_id is not null),
               coalesce(array_agg(distinct c.resource_id) filter (where c.resource_id is not null), '{}')
        into nodes_, seats
        from (select item.node_id, null::text as resource_id
              union all
              select o.node_id, o.resource_id from claims o where o.owner_id = any (overdue) and o.closed_at is null) c;
        if not busy and item.wait then
            perform from nodes n where n.id = any (nodes_) order by n.id for no key update;
        elsif not busy then
            select count(*) < cardinality(nodes_) into busy
            from (select from nodes n where n.id = any (nodes_) order by n.id for no key update skip locked) locked;
        end if;
        if not busy then
            perform from resources r where r.id = any (seats) order by r.id for no key update;
            perform from reservations r where r.id = any (overdue) order by r.id for no key update;
            stamp := clock_timestamp();
            if item.ends_at is null or item.ends_at > stamp then
                select coalesce(bool_or(not r.overdue), false),
                       coalesce(array_agg(r.owner_id) filter (where r.overdue), '{}')
                into busy, due
                from rivals_for(array[item.node_id], '{}', units_, tstzrange(stamp, item.ends_at), stamp) r;
                busy := busy or not due <@ overdue or exists (
                    select from slots s where s.node_id = item.node_id and s.state = 'out_of_service'
                    and (item.mask >> s.slot_index) & 1 = 1
                ) or exists (
                    select from claims c where c.owner_id = any (due) and c.closed_at is null
                    and not coalesce(c.node_id = any (nodes_), c.resource_id = any (seats), false));
            end if;
        end if;
        if busy then
            delete from operations where scope = item.tenant_id and key = item.key and status is null;
            return jsonb_build_array(jsonb_build_object('n', item.n, 'outcome', 'lost'));
        end if;
    end if;

    begin
        if cardinality(due) > 0 then
            perform 1 from tenant_quotas q
            where q.tenant_id = item.tenant_id or q.tenant_id in (select r.tenant_id from reservations r where r.id = any (due))
            order by q.tenant_id for no key update;
            for held in select r.* from reservations r where r.id = any (due) order by r.id loop
                perform advance_reservation(held.id, 'hold', held.row_version, 'expired', 'reservation.expired',
                    jsonb_build_object('deadline', rfc3339(held.expires_at), 'actor_kind', 'system'), stamp,
                    item.reservation_retire_seconds, null, null);
                perform close_reservation_claims(held.id);
                update tenant_quotas q set gpus_used = q.gpus_used - held.gpus_held, row_version = q.row_version + 1
                where q.tenant_id = held.tenant_id;
            end loop;
        end if;
        answer := place_together(jsonb_build_array(p_item), cardinality(due) > 0);
    exception when sqlstate 'BC001' then
        delete from operations where scope = item.tenant_id and key = item.key and status is null;
        -- The key's operation may have been retired while its allocation is still there: a creation never runs twice.
        select jsonb_build_object('outcome', 'existing', 'status', s.status, 'body', s.body,
                                  'fingerprint', encode(s.fingerprint, 'hex'))
        into answer from standing_creation(item.tenant_id, item.key) s;
        answer := jsonb_build_array(coalesce(answer, '{"outcome": "lost"}') || jsonb_build_object('n', item.n));
    end;
    return answer;
end $$;
