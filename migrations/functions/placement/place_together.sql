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
                   when t.depleted_at is not null then 'depleted'
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
                                       'ends_at', rfc3339(ends_at), 'node_id', node_id, 'fence', fence,
                                       'units', (select jsonb_agg(jsonb_build_array(lower(part), upper(part)) order by part)
                                                 from unnest(units) part))
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
