-- Place an allocation like one whose units are reported as faulty, beside it, and return `outcome`:
--   created   allocation_id;   no_room: no node fits;   busy: only locked nodes fit, worth another try
--   tenant    it is suspended;   depleted: its prepaid balance is used up
-- Everything but `created` leaves nothing behind. The units of the old allocation are occupied, so it never gets them; other
-- nodes come first. SKU, price, image, login data, labels, end and restart policy are those of the old one, also where the
-- catalogue has changed since. The quota counts both; its limit is not compared, because the old one is about to be released.
-- The caller has locked the old allocation and evaluated it. Waits for no lock but the quota's.
create or replace function place_replacement(p_item jsonb) returns jsonb language plpgsql set enable_seqscan = off as $$
declare
    item    record;
    old_    allocations;
    node    record;
    picked  bigint;
    stamp   timestamptz;
    claim   claims;
    made    allocations;
    refused text;
begin
    select * into item from jsonb_to_record(p_item) as i(
        allocation_id uuid, pool_id integer, classes smallint[], lows integer[], highs integer[], start_seconds float8,
        own_key text, fingerprint text, correlation_id uuid, key text, request_id text, actor_id text);
    select * into strict old_ from allocations where id = item.allocation_id;
    select case when t.state <> 'active' then 'tenant' when t.depleted_at is not null then 'depleted' end into refused
    from tenants t where t.id = old_.tenant_id;
    if refused is not null then
        return jsonb_build_object('outcome', refused);
    end if;
    node := lock_best_node(item.pool_id, old_.shape, old_.gpus, item.classes, array[old_.node_id], 'skip', null);
    if node.id is null then
        node := lock_best_node(item.pool_id, old_.shape, old_.gpus, item.classes, '{}', 'skip', null);
    end if;
    if node.id is null then
        node := lock_best_node(item.pool_id, old_.shape, old_.gpus, item.classes, '{}', 'none', null);
        return jsonb_build_object('outcome', case when node.id is null then 'no_room' else 'busy' end);
    end if;

    picked := pick_slots(node.free_mask, node.half_slots, item.lows[node.place], item.highs[node.place]);
    stamp := clock_timestamp();
    made.id := uuidv7();
    begin
        insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, occupied, occupied_from, fence)
        values (node.id, old_.tenant_id, 'allocation', made.id, mask_to_units(node.unit_base, picked),
                tstzrange(stamp, old_.ends_at), true, stamp, nextval('fences')) returning * into claim;
    exception when exclusion_violation then
        return '{"outcome": "busy"}';
    end;
    insert into allocations (id, tenant_id, sku, shape, gpu_model, gpus, region, image, price_version, name, labels,
        user_data, ssh_public_keys, node_id, claim_id, operation_key, operation_fingerprint, correlation_id, requested_at,
        ends_at, waits_for, waits_since, waits_until, restart_policy)
    values (made.id, old_.tenant_id, old_.sku, old_.shape, old_.gpu_model, old_.gpus, old_.region, old_.image,
        old_.price_version, old_.name, old_.labels, old_.user_data, old_.ssh_public_keys, node.id, claim.id, item.own_key,
        decode(item.fingerprint, 'hex'), item.correlation_id, stamp, old_.ends_at, 'worker', stamp,
        stamp + make_interval(secs => item.start_seconds), old_.restart_policy);
    insert into allocation_timeline (allocation_id, at, kind, to_state, row_version, actor_kind, actor_id, fence)
    values (made.id, stamp, 'transition', 'requested', 1, 'tenant', item.actor_id, claim.fence);
    insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, operation_key, request_id, payload)
    values ('provisioning.requested', stamp, item.correlation_id, old_.tenant_id, 'allocations/' || made.id, item.key,
        item.request_id, requested_payload(made.id, claim.fence, false) - 'turned_over' - 'reservation_id');
    perform refresh_node_fit(node.id);
    update tenant_quotas q set gpus_used = q.gpus_used + old_.gpus, row_version = q.row_version + 1
    where q.tenant_id = old_.tenant_id;
    return jsonb_build_object('outcome', 'created', 'allocation_id', made.id);
end $$;
