-- Placement in one server-side call (DESIGN §5, §10). What to try, and in which order, is decided outside by the pure
-- function of orchestrator/placement; this executes it: lock the first free node of the best class, take the lowest
-- free slots of each half, and write claim, allocation, timeline, event and operation together.

-- The lowest `p_count` set bits of a mask.
create function lowest_bits(p_mask bigint, p_count integer) returns bigint language plpgsql immutable strict as $$
declare
    rest  bigint := p_mask;
    taken bigint := 0;
begin
    for i in 1..p_count loop
        taken := taken | (rest & -rest);
        rest := rest & (rest - 1);
    end loop;
    return taken;
end $$;

-- The units of a mask, as ranges over the node's block.
create function mask_to_units(p_base bigint, p_mask bigint) returns int8multirange language plpgsql immutable strict as $$
declare
    units int8multirange := '{}';
    rest  bigint := p_mask;
    unit  bigint := p_base;
begin
    while rest <> 0 loop
        if rest & 1 = 1 then
            units := units + int8multirange(int8range(unit, unit + 1));
        end if;
        rest := rest >> 1;
        unit := unit + 1;
    end loop;
    return units;
end $$;

-- Derives a node's materialised fit from its slots and claims. The caller holds the node's row lock.
create function refresh_node_fit(p_node_id uuid) returns void language sql as $$
    with taken as (
        select range_agg(part) as units
        from claims c cross join lateral unnest(c.units) part
        where c.node_id = p_node_id and c.closed_at is null and (c.booked or c.occupied)
    ), fit as (
        select coalesce(sum(1::bigint << s.slot_index), 0)::bigint as mask,
               count(*) filter (where s.numa_half = 0) as low,
               count(*) filter (where s.numa_half = 1) as high
        from slots s left join taken t on true
        where s.node_id = p_node_id and s.state = 'in_service' and not coalesce(t.units @> s.unit, false)
    )
    update nodes set free_mask = fit.mask, fit_class = fit.low * 64 + fit.high, row_version = row_version + 1
    from fit where nodes.id = p_node_id
$$;

-- What the client is told of a create, as long as the row exists.
create function creation_body(p_row allocations) returns jsonb language sql immutable as $$
    select jsonb_build_object('allocation_id', p_row.id, 'status', 'requested', 'sku', p_row.sku, 'shape', p_row.shape,
        'gpus', p_row.gpus, 'region', p_row.region, 'image', p_row.image, 'name', p_row.name, 'labels', p_row.labels,
        'correlation_id', p_row.correlation_id,
        'requested_at', to_char(p_row.requested_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
$$;

-- Places a list of creates in the caller's transaction, a savepoint each, and answers what became of each:
--   existing     the key has a stored answer: fingerprint, status, body
--   created      allocation_id, status, body
--   no_room      no unlocked node fits now; the caller looks again before it refuses
--   quota        the tenant's limit would be exceeded: gpus_used, gpus_limit
--   ssh_key      one of the keys is not the tenant's;  tenant: it is suspended;  stale: the catalogue moved on
--   lost         a constraint refused the claim; worth another try
-- Items that were not created leave nothing behind. Lock order: all keys (sorted), nodes (never waiting, unless
-- `wait`), quotas last, in tenant order. `p_quota_first` locks a tenant's quota before its items: the answer to BQ001.
-- Plans are made once a session, perhaps while a table is still empty: without the settings below they would keep reading
-- whole tables for as long as the session lives (measured: 800 placements/s and falling).
create function place_allocations(p_items jsonb, p_quota_first boolean) returns jsonb language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
    item     record;
    step     record;
    node_    uuid;                                           -- the node that was locked, and what its row says
    base_    bigint;
    mask_    bigint;
    half_    smallint;
    answers  jsonb[] := '{}';
    tenant   uuid;
    quota    record;
    pending  integer := 0;                                   -- placed for `tenant`, not yet on its quota row
    keys     text[];
    picked   bigint;
    claim    bigint;
    alloc    uuid;
    stamp    timestamptz;
    fence_   bigint;
    answer   jsonb;
    body_    text;
begin
    with fresh as (
        insert into operations (scope, key, fingerprint, retire_after)
        select i.tenant_id, i.key, decode(i.fingerprint, 'hex'), clock_timestamp() + make_interval(secs => i.retire_seconds)
        from jsonb_to_recordset(p_items) as i(tenant_id uuid, key text, fingerprint text, retire_seconds float8)
        order by i.tenant_id, i.key
        on conflict do nothing
        returning scope, key
    )
    select array_agg(scope::text || ' ' || key) into keys from fresh;

    for item in
        select * from jsonb_to_recordset(p_items) as i(
            n integer, tenant_id uuid, key text, fingerprint text, correlation_id uuid, request_id text, actor_id text,
            sku text, sku_row_version bigint, shape text, gpu_model text, gpus integer, region text, pool_id integer,
            image text, image_row_version bigint, price_version bigint, name text, labels jsonb, user_data text,
            ssh_key_ids uuid[], classes smallint[], lows smallint[], highs smallint[], wait boolean,
            start_seconds float8)
        order by i.tenant_id, i.n
    loop
        if not (item.tenant_id::text || ' ' || item.key = any (coalesce(keys, '{}'))) then
            select jsonb_build_object('n', item.n, 'outcome', 'existing', 'status', o.status, 'body', o.body,
                                      'fingerprint', encode(o.fingerprint, 'hex'))
            into answer from operations o where o.scope = item.tenant_id and o.key = item.key;
            answers := answers || coalesce(answer, jsonb_build_object('n', item.n, 'outcome', 'lost'));
            continue;
        end if;

        if tenant is distinct from item.tenant_id then
            if pending > 0 then
                update tenant_quotas set gpus_used = gpus_used + pending, row_version = row_version + 1
                where tenant_id = tenant and (gpus_limit is null or gpus_used + pending <= gpus_limit);
                if not found then
                    raise exception 'the quota of % moved meanwhile', tenant using errcode = 'BQ001';
                end if;
            end if;
            tenant := item.tenant_id;
            pending := 0;
            if p_quota_first then
                perform 1 from tenant_quotas where tenant_id = tenant for no key update;
            end if;
            select q.gpus_limit, q.gpus_used, t.state into quota
            from tenants t join tenant_quotas q on q.tenant_id = t.id where t.id = tenant;
        end if;

        answer := null;
        begin
            if quota.state is distinct from 'active' then
                answer := jsonb_build_object('outcome', 'tenant');
            elsif not exists (select from skus s where s.name = item.sku and s.row_version = item.sku_row_version)
               or not exists (select from images m where m.name = item.image and m.row_version = item.image_row_version) then
                answer := jsonb_build_object('outcome', 'stale');
            elsif (select count(*) from ssh_keys k where k.id = any (item.ssh_key_ids) and k.tenant_id = item.tenant_id)
               <> cardinality(item.ssh_key_ids) then
                answer := jsonb_build_object('outcome', 'ssh_key');
            elsif quota.gpus_used + pending + item.gpus > quota.gpus_limit then
                answer := jsonb_build_object('outcome', 'quota', 'gpus_used', quota.gpus_used + pending,
                                             'gpus_limit', quota.gpus_limit);
            else
                node_ := null;
                for step in
                    select c.class, c.low, c.high
                    from unnest(item.classes, item.lows, item.highs) with ordinality as c(class, low, high, place)
                    where exists (select from nodes x where x.pool_id = item.pool_id and x.fit_class = c.class
                                  and x.state = 'active' and x.online)
                    order by c.place
                loop
                    if item.wait then
                        select id, unit_base, free_mask, half_slots into node_, base_, mask_, half_ from nodes
                        where pool_id = item.pool_id and fit_class = step.class and state = 'active' and online
                          and (item.shape = 'gpu_slice' or slot_count = item.gpus)
                        order by placement_rank, id limit 1 for no key update;
                    else
                        select id, unit_base, free_mask, half_slots into node_, base_, mask_, half_ from nodes
                        where pool_id = item.pool_id and fit_class = step.class and state = 'active' and online
                          and (item.shape = 'gpu_slice' or slot_count = item.gpus)
                        order by placement_rank, id limit 1 for no key update skip locked;
                    end if;
                    exit when node_ is not null;
                end loop;
                if node_ is null then
                    answer := jsonb_build_object('outcome', 'no_room');
                else
                    picked := lowest_bits(mask_ & ((1::bigint << half_) - 1), step.low)
                            | (lowest_bits(mask_ >> half_, step.high) << half_);
                    fence_ := nextval('fences');
                    stamp := clock_timestamp();
                    alloc := uuidv7();
                    insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, occupied, occupied_from, fence)
                    values (node_, item.tenant_id, 'allocation', alloc, mask_to_units(base_, picked),
                            tstzrange(stamp, null), true, stamp, fence_)
                    returning id into claim;
                    insert into allocations (id, tenant_id, sku, shape, gpu_model, gpus, region, image, price_version, name,
                        labels, user_data, ssh_public_keys, node_id, claim_id, operation_key, operation_fingerprint,
                        correlation_id, requested_at, waits_for, waits_since, waits_until)
                    values (alloc, item.tenant_id, item.sku, item.shape, item.gpu_model, item.gpus, item.region, item.image,
                        item.price_version, item.name, item.labels, item.user_data,
                        (select array_agg(k.public_key order by k.id) from ssh_keys k where k.id = any (item.ssh_key_ids)),
                        node_, claim, item.key, decode(item.fingerprint, 'hex'), item.correlation_id, stamp,
                        'worker', stamp, stamp + make_interval(secs => item.start_seconds))
                    returning creation_body(allocations)::text into body_;
                    insert into allocation_timeline (allocation_id, at, kind, to_state, row_version, actor_kind, actor_id, fence)
                    values (alloc, stamp, 'transition', 'requested', 1, 'tenant', item.actor_id, fence_);
                    insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, operation_key, request_id, payload)
                    values ('provisioning.requested', stamp, item.correlation_id, item.tenant_id, 'allocations/' || alloc,
                        item.key, item.request_id, jsonb_build_object('allocation_id', alloc, 'sku', item.sku,
                        'shape', item.shape, 'gpus', item.gpus, 'region', item.region, 'node_id', node_, 'fence', fence_));
                    update nodes set free_mask = mask_ & ~picked, fit_class = step.class - step.low * 64 - step.high,
                        row_version = row_version + 1
                    where id = node_;
                    update operations set status = 201, code = 'ok', body = body_, subject_id = alloc
                    where scope = item.tenant_id and key = item.key;
                    pending := pending + item.gpus;
                    answer := jsonb_build_object('outcome', 'created', 'allocation_id', alloc, 'status', 201, 'body', body_);
                end if;
            end if;
        exception
            when exclusion_violation then
                perform refresh_node_fit(node_);
                answer := jsonb_build_object('outcome', 'lost');
            when unique_violation then
                -- The key's operation has been retired, but its allocation is still there: a creation never runs twice.
                select jsonb_build_object('outcome', 'existing', 'status', 201,
                                          'fingerprint', encode(a.operation_fingerprint, 'hex'),
                                          'body', creation_body(a)::text)
                into answer from allocations a where a.tenant_id = item.tenant_id and a.operation_key = item.key;
                answer := coalesce(answer, jsonb_build_object('outcome', 'lost'));
        end;
        if answer ->> 'outcome' <> 'created' then
            delete from operations where scope = item.tenant_id and key = item.key;
        end if;
        answers := answers || (answer || jsonb_build_object('n', item.n));
    end loop;

    if pending > 0 then
        update tenant_quotas set gpus_used = gpus_used + pending, row_version = row_version + 1
        where tenant_id = tenant and (gpus_limit is null or gpus_used + pending <= gpus_limit);
        if not found then
            raise exception 'the quota of % moved meanwhile', tenant using errcode = 'BQ001';
        end if;
    end if;
    return to_jsonb(answers);
end $$;
