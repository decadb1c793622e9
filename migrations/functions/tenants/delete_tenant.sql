-- Delete a tenant that holds nothing; return `outcome`:
--   deleted     name, deleted_at, and what was removed with it: api_keys (revoked), ssh_keys, webhooks, subscriptions, policies
--   in_use      users: how many allocations, reservations and cleanups it still has;   not_found
--   noop        it was deleted before
-- Its members and invitations go too, uncounted. The row of `tenants` stays as a tombstone; the row of `tenant_quotas` goes. Every transaction that creates or holds for the
-- tenant changes that row (`change_quotas`) or locks it (`keep_tenant`) before it commits, and fails if the row is gone. A
-- commit of keys and values holds the lock of the namespace and reads the tombstone (`kv_commit`).
-- Lock order: quota, namespace, tenant: `deleted_at` is after every commit of the namespace. No transaction that holds one of the others waits for a quota.
create or replace function delete_tenant(p_tenant uuid) returns jsonb language plpgsql
set enable_seqscan = off set plan_cache_mode = force_custom_plan as $$
declare
    users  jsonb;
    gone   record;
    answer jsonb;
begin
    perform from tenant_quotas q where q.tenant_id = p_tenant for update;
    if not found then
        return jsonb_build_object('outcome', case when exists (select from tenants t where t.id = p_tenant)
                                                  then 'noop' else 'not_found' end);
    end if;
    -- One statement after the lock, so one snapshot: what a reservation held a moment ago, an allocation may hold now.
    select jsonb_build_object(
        'allocations', (select count(*) from allocations a
                        where a.tenant_id = p_tenant and a.state not in ('released', 'failed')),
        'reservations', (select count(*) from reservations r
                         where r.tenant_id = p_tenant and r.state in ('hold', 'confirmed') and r.row_version > 0),
        'cleanups', (select count(*) from claims c join allocations a on a.id = c.owner_id
                     where c.tenant_id = p_tenant and c.closed_at is null and c.node_id is not null
                       and c.owner_kind = 'allocation' and a.state in ('released', 'failed'))) into users;
    if exists (select from jsonb_each_text(users) u where u.value <> '0') then
        return jsonb_build_object('outcome', 'in_use', 'users', users);
    end if;

    insert into kv_namespaces (id) values (p_tenant) on conflict do nothing;
    perform from kv_namespaces n where n.id = p_tenant for no key update;
    delete from tenant_quotas q where q.tenant_id = p_tenant returning q.row_version into gone;
    delete from tenant_rows r where r.tenant_id = p_tenant;
    -- The version that readers see is the sum of both rows' and never falls.
    update tenants t set state = 'deleted', deleted_at = clock_timestamp(), row_version = t.row_version + gone.row_version
    where t.id = p_tenant
    returning jsonb_build_object('outcome', 'deleted', 'name', t.name, 'deleted_at', rfc3339(t.deleted_at)) into answer;
    with keys as (
        update api_keys set revoked_at = clock_timestamp() where tenant_id = p_tenant and revoked_at is null returning 1
    ), ssh as (
        delete from ssh_keys where tenant_id = p_tenant returning 1
    ), joined as (
        delete from tenant_members where tenant_id = p_tenant
    ), invited as (
        delete from tenant_invitations where tenant_id = p_tenant
    ), hooks as (
        update webhooks set state = 'deleted', keys = '[]', disabled_reason = null, disabled_at = null,
                            updated_at = clock_timestamp()
        where tenant_id = p_tenant and state <> 'deleted' returning id
    ), deliveries as (
        update webhook_deliveries d set state = 'failed', error = 'webhook_disabled', next_attempt_at = null,
                                        ended_at = clock_timestamp()
        from hooks h where d.webhook_id = h.id and d.state = 'pending' and not d.leased
    ), subscribed as (
        delete from notification_subscriptions where scope = p_tenant returning 1
    ), subnets as (
        delete from networks where tenant_id = p_tenant returning id
    ), vlans as (
        update network_vlans set left_at = coalesce(left_at, clock_timestamp()) where network_id in (select id from subnets)
    ), kept as (
        delete from retention_policies where scope = p_tenant returning 1
    )
    select (select count(*) from keys) as api_keys, (select count(*) from ssh) as ssh_keys,
           (select count(*) from hooks) as webhooks, (select count(*) from subscribed) as subscriptions,
           (select count(*) from kept) as policies into gone;
    return answer || to_jsonb(gone);
end $$;
