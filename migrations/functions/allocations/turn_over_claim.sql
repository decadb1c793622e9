-- Turns one claim of a reservation over to an allocation, and returns the result (`outcome`):
--   created   allocation_id, body, waits (its units are still occupied), last (the reservation holds nothing any more)
--   stale     the catalogue moved on;   ssh_key: one of them is not the tenant's;   tenant: it is suspended
-- Everything but `created` leaves nothing behind. The caller has locked the claim's node and the reservation, and judged
-- by the clock `judged_at` after that. The quota is not touched: what the reservation held, the allocation holds.
create or replace function turn_over_claim(p_item jsonb) returns jsonb language plpgsql set enable_seqscan = off as $$
declare
    item    record;
    claim   claims;
    made    allocations;
    busy    boolean;
    keys    text[];
    refused text;
    last_   boolean;
    event   uuid;
begin
    select * into item from jsonb_to_record(p_item) as i(
        reservation_id uuid, claim_id bigint, judged_at timestamptz, key text, own_key text, fingerprint text,
        correlation_id uuid, request_id text, actor_kind text, actor_id text, sku text, sku_row_version bigint, shape text,
        gpu_model text, gpus integer, region text, image text, image_row_version bigint, price_version bigint, name text,
        labels jsonb, user_data text, ssh_key_ids uuid[], ends_at timestamptz, start_seconds float8, units_seconds float8,
        restart_policy text);
    select * into strict claim from claims
    where id = item.claim_id and owner_kind = 'reservation' and owner_id = item.reservation_id and closed_at is null;

    -- Read once: a key that is deleted after this statement was the tenant's when its claim was turned over.
    keys := array(select k.public_key from ssh_keys k where k.id = any (item.ssh_key_ids) and k.tenant_id = claim.tenant_id
                  order by k.id);
    refused := case
        when not exists (select from tenants t where t.id = claim.tenant_id and t.state = 'active') then 'tenant'
        when (select t.depleted_at from tenants t where t.id = claim.tenant_id) is not null then 'depleted'
        when not exists (select from skus s where s.name = item.sku and s.row_version = item.sku_row_version)
          or not exists (select from images m where m.name = item.image and m.row_version = item.image_row_version) then 'stale'
        when cardinality(keys) <> cardinality(item.ssh_key_ids) then 'ssh_key'
    end;
    if refused is not null then
        return jsonb_build_object('outcome', refused);
    end if;

    made.id := uuidv7();
    busy := exists (select from claims o where o.node_id = claim.node_id and o.closed_at is null and o.occupied
                    and o.units && claim.units);
    perform bump_row_versions(claim.node_id, null);
    update claims set owner_kind = 'allocation', owner_id = made.id, fence = nextval('fences'), occupied = not busy,
                      occupied_from = case when not busy then item.judged_at end
    where id = claim.id returning * into claim;
    insert into allocations (id, tenant_id, sku, shape, gpu_model, gpus, region, image, price_version, name, labels,
        user_data, ssh_public_keys, node_id, claim_id, operation_key, operation_fingerprint, correlation_id, requested_at,
        waits_for, waits_since, waits_until, ends_at, reservation_id, restart_policy)
    values (made.id, claim.tenant_id, item.sku, item.shape, item.gpu_model, item.gpus, item.region, item.image,
        item.price_version, item.name, item.labels, item.user_data, keys, claim.node_id, claim.id, item.own_key,
        decode(item.fingerprint, 'hex'), item.correlation_id, item.judged_at,
        case when busy then 'units' else 'worker' end, item.judged_at,
        case when busy then least(item.ends_at, item.judged_at + make_interval(secs => item.units_seconds))
             else item.judged_at + make_interval(secs => item.start_seconds) end,
        item.ends_at, item.reservation_id, coalesce(item.restart_policy, 'always'))
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
        requested_payload(made.id, claim.fence, true)) returning event_id into event;

    -- `offset 0`: as in `lock_reservation`.
    last_ := not exists (
        select from (select owner_kind, closed_at from claims where owner_id = item.reservation_id offset 0) c
        where c.owner_kind = 'reservation' and c.closed_at is null);
    -- The row version of the last turn-over moves with its state, which the caller changes.
    update reservations r set gpus_held = r.gpus_held - made.gpus, row_version = r.row_version + (not last_)::integer
    where r.id = item.reservation_id;
    return jsonb_build_object('outcome', 'created', 'allocation_id', made.id, 'body', creation_body(made)::text,
                              'waits', busy, 'last', last_, 'event_id', event);
end $$;
