-- The bare rows of one placement as one statement over the tables of schema.sql, at commit 7fc91dd; never edited.
with given as materialized (
    select nextval('bench_numbers') as number
), node as materialized (
    select n.id, n.unit_base, n.free_mask, n.fit_class, (g.number / :nodes::bigint)::integer as slot, g.number
    from given g join nodes n on n.unit_base = (g.number % :nodes::bigint + 1) * 8
), named as materialized (
    select uuidv7() as allocation_id, gen_random_uuid() as correlation_id, nextval('fences') as fence,
           clock_timestamp() as stamp, 'bench-' || number as key, node.*
    from node
), operation as (
    insert into operations (scope, key, fingerprint, status, code, body, subject_id, retire_after)
    select :tenant::uuid, key, decode(repeat('ab', 32), 'hex'), 201, 'ok',
           jsonb_build_object('allocation_id', allocation_id, 'status', 'requested', 'sku', 'h100.slice', 'shape', 'gpu_slice',
               'gpus', 1, 'region', 'eu-1', 'image', 'ubuntu-24.04', 'name', null, 'labels', '{}'::jsonb,
               'correlation_id', correlation_id,
               'requested_at', stamp)::text,
           allocation_id, stamp + interval '1 day'
    from named
), claim as (
    insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, occupied, occupied_from, fence)
    select id, :tenant::uuid, 'allocation', allocation_id,
           int8multirange(int8range(unit_base + slot, unit_base + slot + 1)), tstzrange(stamp, null), true, stamp, fence
    from named
    returning id
), allocation as (
    insert into allocations (id, tenant_id, sku, shape, gpu_model, gpus, region, image, price_version, ssh_public_keys,
        node_id, claim_id, operation_key, operation_fingerprint, correlation_id, requested_at, waits_for, waits_since,
        waits_until)
    select allocation_id, :tenant::uuid, 'h100.slice', 'gpu_slice', 'H100', 1, 'eu-1', 'ubuntu-24.04', 1,
           array['ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICvBwJKizisYM/acETASrukZc8YSiqEDP9S92PHXmHZa bench'],
           named.id, claim.id, key, decode(repeat('ab', 32), 'hex'), correlation_id, stamp, 'worker', stamp,
           stamp + interval '300 s'
    from named, claim
), timeline as (
    insert into allocation_timeline (allocation_id, at, kind, to_state, row_version, actor_kind, actor_id, fence)
    select allocation_id, stamp, 'transition', 'requested', 1, 'tenant', correlation_id::text, fence from named
), event as (
    insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, operation_key, request_id, payload)
    select 'provisioning.requested', stamp, correlation_id, :tenant::uuid, 'allocations/' || allocation_id, key,
           correlation_id::text, jsonb_build_object('allocation_id', allocation_id, 'sku', 'h100.slice',
               'shape', 'gpu_slice', 'gpus', 1, 'region', 'eu-1', 'node_id', id, 'fence', fence)
    from named
)
update nodes n set free_mask = n.free_mask & ~(1::bigint << named.slot),
    fit_class = n.fit_class - case when named.slot < 4 then 64 else 1 end, row_version = n.row_version + 1
from named where n.id = named.id;
