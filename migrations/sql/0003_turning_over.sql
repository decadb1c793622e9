-- Turning over: a reservation's claim becomes an allocation's, now or as soon as whoever overran is proven gone (DESIGN §5).

-- What the client is told of a create, as long as the row exists.
create or replace function creation_body(p_row allocations) returns json language sql stable as $$
    select json_build_object('allocation_id', p_row.id, 'status', 'requested', 'sku', p_row.sku, 'shape', p_row.shape,
        'gpus', p_row.gpus, 'region', p_row.region, 'image', p_row.image, 'name', p_row.name, 'labels', p_row.labels,
        'reservation_id', p_row.reservation_id,
        'ends_at', to_char(p_row.ends_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'correlation_id', p_row.correlation_id,
        'requested_at', to_char(p_row.requested_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
$$;

-- Starts what waits for units of this node and finds them free, the earliest window first; answers how many that were.
-- The caller has locked the node, so nobody begins to occupy any of its units meanwhile. Each gets a newer fence than
-- whoever was on its units has ever had, or the node would refuse its task. One whose own time is over is left to
-- those who end it.
create function start_waiting(p_node uuid, p_start_seconds float8) returns integer language plpgsql
set enable_seqscan = off as $$
declare
    waiting record;
    fence_  bigint;
    stamp   timestamptz;
    started integer := 0;
begin
    for waiting in
        select a.*, c.units from allocations a join claims c on c.id = a.claim_id
        where a.node_id = p_node and a.waits_for = 'units' and a.state = 'requested' and c.booked
        order by lower(c.during), c.id for no key update of a, c
    loop
        stamp := clock_timestamp();
        continue when waiting.ends_at <= stamp;
        continue when exists (
            select from claims o
            where o.node_id = p_node and o.closed_at is null and o.occupied and o.units && waiting.units);
        update claims set occupied = true, occupied_from = stamp, fence = nextval('fences')
        where id = waiting.claim_id returning fence into fence_;
        update allocations set row_version = row_version + 1, waits_for = 'worker', waits_since = stamp,
                               waits_until = stamp + make_interval(secs => p_start_seconds)
        where id = waiting.id;
        insert into allocation_timeline (allocation_id, at, kind, code, detail, actor_kind, actor_id, fence)
        values (waiting.id, stamp, 'note', 'units_free', 'nothing is left on its units; it starts', 'system', 'units', fence_);
        insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, payload)
        values ('provisioning.requested', stamp, waiting.correlation_id, waiting.tenant_id, 'allocations/' || waiting.id,
            requested_payload(waiting.id, fence_, false));
        started := started + 1;
    end loop;
    return started;
end $$;

-- What is told of an allocation that is asked for; `p_turned_over`: by this very event its claim became its own.
create function requested_payload(p_id uuid, p_fence bigint, p_turned_over boolean) returns jsonb language sql stable as $$
    select jsonb_build_object('allocation_id', a.id, 'sku', a.sku, 'shape', a.shape, 'gpus', a.gpus, 'region', a.region,
        'node_id', a.node_id, 'fence', p_fence, 'reservation_id', a.reservation_id, 'turned_over', p_turned_over,
        'units', (select jsonb_agg(jsonb_build_array(lower(part), upper(part)) order by part) from unnest(c.units) part),
        'ends_at', rfc3339(a.ends_at))
    from allocations a join claims c on c.id = a.claim_id where a.id = p_id
$$;

-- One claim of a reservation becomes an allocation's, and answers what became of it (`outcome`):
--   created   allocation_id, body, waits (somebody is still on its units), last (the reservation holds nothing any more)
--   stale     the catalogue moved on;   ssh_key: one of them is not the tenant's;   tenant: it is suspended
-- Everything but `created` leaves nothing behind. The caller has locked the claim's node and the reservation, and judged
-- by the clock `judged_at` after that. The quota is not touched: what the reservation held, the allocation holds.
create function turn_over_claim(p_item jsonb) returns jsonb language plpgsql set enable_seqscan = off as $$
declare
    item    record;
    claim   claims;
    made    allocations;
    busy    boolean;
    told    text;
    last_   boolean;
begin
    select * into item from jsonb_to_record(p_item) as i(
        reservation_id uuid, claim_id bigint, judged_at timestamptz, key text, own_key text, fingerprint text,
        correlation_id uuid, request_id text, actor_kind text, actor_id text, sku text, sku_row_version bigint, shape text, gpu_model text,
        gpus integer, region text, image text, image_row_version bigint, price_version bigint, name text, labels jsonb,
        user_data text, ssh_key_ids uuid[], ends_at timestamptz, start_seconds float8, units_seconds float8);
    select * into strict claim from claims
    where id = item.claim_id and owner_kind = 'reservation' and owner_id = item.reservation_id and closed_at is null;

    told := case
        when not exists (select from tenants t where t.id = claim.tenant_id and t.state = 'active') then 'tenant'
        when not exists (select from skus s where s.name = item.sku and s.row_version = item.sku_row_version)
          or not exists (select from images m where m.name = item.image and m.row_version = item.image_row_version) then 'stale'
        when (select count(*) from ssh_keys k where k.id = any (item.ssh_key_ids) and k.tenant_id = claim.tenant_id)
          <> cardinality(item.ssh_key_ids) then 'ssh_key'
    end;
    if told is not null then
        return jsonb_build_object('outcome', told);
    end if;

    made.id := uuidv7();
    busy := exists (select from claims o where o.node_id = claim.node_id and o.closed_at is null and o.occupied
                    and o.units && claim.units);
    perform outgrow_claim(claim.node_id, null);
    update claims set owner_kind = 'allocation', owner_id = made.id, fence = nextval('fences'), occupied = not busy,
                      occupied_from = case when not busy then item.judged_at end
    where id = claim.id returning * into claim;
    insert into allocations (id, tenant_id, sku, shape, gpu_model, gpus, region, image, price_version, name, labels,
        user_data, ssh_public_keys, node_id, claim_id, operation_key, operation_fingerprint, correlation_id, requested_at,
        waits_for, waits_since, waits_until, ends_at, reservation_id)
    values (made.id, claim.tenant_id, item.sku, item.shape, item.gpu_model, item.gpus, item.region, item.image,
        item.price_version, item.name, item.labels, item.user_data,
        (select array_agg(k.public_key order by k.id) from ssh_keys k where k.id = any (item.ssh_key_ids)),
        claim.node_id, claim.id, item.own_key, decode(item.fingerprint, 'hex'), item.correlation_id, item.judged_at,
        case when busy then 'units' else 'worker' end, item.judged_at,
        case when busy then least(item.ends_at, item.judged_at + make_interval(secs => item.units_seconds))
             else item.judged_at + make_interval(secs => item.start_seconds) end,
        item.ends_at, item.reservation_id)
    returning * into made;
    insert into allocation_timeline (allocation_id, at, kind, to_state, row_version, actor_kind, actor_id, fence)
    values (made.id, item.judged_at, 'transition', 'requested', 1, item.actor_kind, item.actor_id, claim.fence);
    if busy then
        insert into allocation_timeline (allocation_id, at, kind, code, detail, actor_kind, actor_id, fence)
        values (made.id, item.judged_at, 'note', 'units_busy',
                'another allocation may still be on its units; it starts when that one is proven gone', 'system', 'units',
                claim.fence);
    end if;
    insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, operation_key, request_id, payload)
    values (case when busy then 'provisioning.waiting' else 'provisioning.requested' end, item.judged_at,
        made.correlation_id, made.tenant_id, 'allocations/' || made.id, item.key, item.request_id,
        requested_payload(made.id, claim.fence, true));

    last_ := not exists (select from claims c where c.owner_id = item.reservation_id and c.owner_kind = 'reservation'
                         and c.closed_at is null);
    -- The last one's row version moves with its state, which the caller changes.
    update reservations r set gpus_held = r.gpus_held - made.gpus, row_version = r.row_version + (not last_)::integer
    where r.id = item.reservation_id;
    return jsonb_build_object('outcome', 'created', 'allocation_id', made.id, 'body', creation_body(made)::text,
                              'waits', busy, 'last', last_);
end $$;

-- As it was held, whatever of it has been turned over since.
create function as_held(r reservations) returns reservations language plpgsql stable set enable_seqscan = off as $$
begin
    r.gpus_held := r.gpus_held + coalesce((select sum(a.gpus) from allocations a where a.reservation_id = r.id), 0);
    return r;
end $$;

create or replace function standing_creation(p_scope uuid, p_key text)
returns table (fingerprint bytea, status smallint, body text, subject_id uuid) language sql stable as $$
    select a.operation_fingerprint, 201::smallint, creation_body(a)::text, a.id
    from allocations a where a.tenant_id = p_scope and a.operation_key = p_key
    union all
    select r.operation_fingerprint, 201::smallint, first_reservation_body(as_held(r))::text, r.id
    from reservations r where r.tenant_id = p_scope and r.operation_key = p_key
$$;

-- How the units of a node are named: all of it by a bare-metal reservation, else slot by slot.
create function names_of_units(p_node uuid, p_shape text, p_units int8multirange) returns text[] language sql stable as $$
    select case when p_shape = 'baremetal' then array['node:' || p_node]
                else (select array_agg('slot:' || p_node || ':' || unit - n.unit_base order by unit)
                      from unnest(p_units) part, generate_series(lower(part), upper(part) - 1) unit) end
    from nodes n where n.id = p_node
$$;

-- Moves a reservation's claim to other slots, under a new fence; false if they are not free in all of its window. The
-- caller has locked both nodes and the reservation, and judged by the clock `p_judged_at` that it is to be moved.
create function move_claim(p_claim bigint, p_node uuid, p_mask bigint, p_reason text, p_judged_at timestamptz)
returns boolean language plpgsql set enable_seqscan = off as $$
declare
    old   claims;
    moved claims;
    r     reservations;
    node_ nodes;
begin
    select * into strict old from claims where id = p_claim and owner_kind = 'reservation' and closed_at is null;
    select * into strict node_ from nodes where id = p_node;
    if node_.state <> 'active' or not node_.online
       or exists (select from rivals_for(array[p_node], '{}', mask_to_units(node_.unit_base, p_mask), old.during, p_judged_at))
       or exists (select from slots s where s.node_id = p_node and s.state = 'out_of_service'
                  and p_mask >> s.slot_index & 1 = 1) then
        return false;
    end if;
    perform outgrow_claim(old.node_id, null);
    update claims set node_id = p_node, units = mask_to_units(node_.unit_base, p_mask), fence = nextval('fences')
    where id = p_claim returning * into moved;
    perform refresh_node_fit(old.node_id);
    if p_node <> old.node_id then
        perform refresh_node_fit(p_node);
    end if;
    update reservations set
        row_version = row_version + 1,
        resources = array(select name from unnest(resources) with ordinality as n(name, place)
                          where name <> all (names_of_units(old.node_id, node_.shape, old.units)) order by place)
                    || names_of_units(p_node, node_.shape, moved.units)
    where id = old.owner_id returning * into r;
    insert into outbox (event_type, correlation_id, tenant_id, subject, payload)
    values ('reservation.moved', r.correlation_id, r.tenant_id, 'reservations/' || r.id,
        jsonb_build_object('reservation_id', r.id, 'holder_id', r.holder_id, 'judged_at', rfc3339(p_judged_at),
            'reason', p_reason, 'from', claim_place(old), 'to', claim_place(moved)));
    return true;
end $$;

create function claim_place(c claims) returns jsonb language sql stable as $$
    select jsonb_build_object('node_id', c.node_id, 'fence', c.fence,
        'units', (select jsonb_agg(jsonb_build_array(lower(part), upper(part)) order by part) from unnest(c.units) part))
$$;
