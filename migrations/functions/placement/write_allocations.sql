-- Write the allocations that were placed, with claims, timeline, events and operations, and return one outcome for each.
-- `p_placed` are places in the list, `p_placed_on` places in `p_nodes`, `p_picks` masks of slots. Each table is written
-- by one statement, because starting a statement costs more than a row (docs/reference/performance.md).
-- Raises BC001 when a constraint refuses a claim or a key (the detail names the nodes).
-- Runs under the planner settings of its caller: setting them again costs more than the call.
create or replace function write_allocations(
    p_items jsonb, p_stamp timestamptz, p_nodes uuid[], p_bases bigint[], p_placed integer[], p_placed_on integer[],
    p_picks bigint[]
) returns jsonb[] language plpgsql as $$
declare
    made jsonb[];
begin
    begin
        with put as materialized (
            select i.*, p_nodes[p.held_at] as node_id, mask_to_units(p_bases[p.held_at], p.picked) as units,
                   nextval('fences') as fence, nextval('claims_id_seq') as claim_id, uuidv7() as id, uuidv7() as event_id,
                   p_stamp as stamp
            from unnest(p_placed, p_placed_on, p_picks) as p(n, held_at, picked)
            join jsonb_to_recordset(p_items) as i(
                n integer, tenant_id uuid, key text, fingerprint text, correlation_id uuid, request_id text,
                actor_id text, sku text, shape text, gpu_model text, gpus integer, region text, image text,
                price_version bigint, name text, labels jsonb, user_data text, ssh_key_ids uuid[],
                start_seconds float8, ends_at timestamptz, restart_policy text) on i.n = p.n
        ), claim as (
            insert into claims (id, node_id, tenant_id, owner_kind, owner_id, units, during, occupied, occupied_from, fence)
            overriding system value
            select claim_id, node_id, tenant_id, 'allocation', id, units, tstzrange(stamp, ends_at), true, stamp, fence from put
        ), allocation as (
            insert into allocations (id, tenant_id, sku, shape, gpu_model, gpus, region, image, price_version, name,
                labels, user_data, ssh_public_keys, node_id, claim_id, operation_key, operation_fingerprint,
                correlation_id, requested_at, ends_at, waits_for, waits_since, waits_until, restart_policy)
            select id, tenant_id, sku, shape, gpu_model, gpus, region, image, price_version, name, labels, user_data,
                (select array_agg(k.public_key order by k.id) from ssh_keys k where k.id = any (ssh_key_ids)),
                node_id, claim_id, key, decode(fingerprint, 'hex'), correlation_id, stamp, ends_at, 'worker', stamp,
                stamp + make_interval(secs => start_seconds), coalesce(restart_policy, 'always')
            from put
            returning id, tenant_id, operation_key, creation_body(allocations)::text as body
        ), timeline as (
            insert into allocation_timeline (allocation_id, at, kind, to_state, row_version, actor_kind, actor_id, fence)
            select id, stamp, 'transition', 'requested', 1, 'tenant', actor_id, fence from put
        ), event as (
            insert into outbox (event_id, event_type, occurred_at, correlation_id, tenant_id, subject, operation_key, request_id, payload)
            select event_id, 'provisioning.requested', stamp, correlation_id, tenant_id, 'allocations/' || id, key, request_id,
                jsonb_build_object('allocation_id', id, 'sku', sku, 'shape', shape, 'gpus', gpus, 'region', region,
                                   'ends_at', rfc3339(ends_at), 'node_id', node_id, 'fence', fence,
                                   'units', (select jsonb_agg(jsonb_build_array(lower(part), upper(part)) order by part)
                                             from unnest(units) part))
            from put
        ), operation as (
            update operations o set status = 201, code = 'ok', body = a.body, subject_id = a.id, event_id = p.event_id
            from allocation a join put p on p.id = a.id where o.scope = a.tenant_id and o.key = a.operation_key
            returning o.subject_id, o.body
        )
        select array_agg(jsonb_build_object('n', p.n, 'outcome', 'created', 'allocation_id', p.id, 'status', 201,
                                            'body', o.body))
        into made from put p join operation o on o.subject_id = p.id;
    -- Without a value: the SSH keys were deleted, with their tenant, after the create was judged.
    exception when exclusion_violation or unique_violation or not_null_violation then
        raise exception 'these units or this key are taken'
            using errcode = 'BC001', detail = array_to_string(p_nodes, ' ');
    end;
    return made;
end $$;
