-- Row-level security: the role that serves tenants touches only rows of the tenants that its transaction has named
-- (orchestrator/database/row_security.py). Without a name it sees no row, and inserts, updates and deletes none. A second barrier
-- behind the filter of each statement (docs/explanation/decisions/0025-row-level-security.md, which also lists the other tables).
-- Every other role passes: `everyone` is permissive, `own_tenant` restricts berth_public_api and its members. The
-- subqueries are evaluated once for a statement, not for each row. Only what differs is changed: the text of a policy is kept
-- as its comment.
do $$
declare
    item record;
begin
    if to_regrole('berth_public_api') is null then
        return;                                              -- the processes connect as the owner, which passes every policy
    end if;
    for item in
        with by_tenant (relation, tenant) as (values
            ('allocations',                'tenant_id'),
            ('api_keys',                   'tenant_id'),
            ('archived_allocations',       'tenant_id'),
            ('balances',                   'tenant_id'),
            ('console_sessions',           'tenant_id'),
            ('fault_reports',              'tenant_id'),
            ('kv_keys',                    'namespace'),
            ('kv_namespaces',              'id'),
            ('ledger',                     'tenant_id'),
            ('metering_intervals',         'tenant_id'),
            ('networks',                   'tenant_id'),
            ('notification_subscriptions', 'scope'),
            ('operations',                 'scope'),
            ('reservations',               'tenant_id'),
            ('retention_policies',         'scope'),
            ('ssh_keys',                   'tenant_id'),
            ('tenant_invitations',         'tenant_id'),
            ('tenant_members',             'tenant_id'),
            ('webhooks',                   'tenant_id'),
            ('wipe_certificates',          'tenant_id')
        ), by_parent (relation, command, reference, parent) as (values
            -- Rows of a parent that the policy of the parent shows.
            ('webhook_deliveries',         'all',    'webhook_id',    'webhooks'),
            ('network_addresses',          'all',    'allocation_id', 'allocations'),
            ('published_ports',            'all',    'allocation_id', 'allocations'),
            -- Only what is read: the row of a new allocation is written by the statement that inserts the allocation.
            ('allocation_timeline',        'select', 'allocation_id', 'allocations')
        ), wanted (relation, command, shown) as (
            select relation, 'all', format('%I = any ((select acting_tenants())::uuid[]) or (select acts_for_platform())', tenant)
            from by_tenant
            union all
            select relation, command, format('(select acts_for_platform()) or exists (select from %I parent where parent.id = %I.%I)',
                                             parent, relation, reference)
            from by_parent
        ), present as (
            select c.relname as relation, p.oid, obj_description(p.oid, 'pg_policy') as shown
            from pg_policy p join pg_class c on c.oid = p.polrelid
            where c.relnamespace = 'public'::regnamespace and p.polname = 'own_tenant'
        )
        select format('alter table %1$I enable row level security; create policy everyone on %1$I using (true);', w.relation)
               as statement
        from wanted w join pg_class c on c.relname = w.relation and c.relnamespace = 'public'::regnamespace
        where not c.relrowsecurity
        union all
        select format('drop policy if exists own_tenant on %1$I;
                       create policy own_tenant on %1$I as restrictive for %2$s to berth_public_api using (%3$s);
                       comment on policy own_tenant on %1$I is %3$L', w.relation, w.command, w.shown)
        from wanted w where not exists (select from present p where p.relation = w.relation and p.shown = w.shown)
        union all
        select format('drop policy own_tenant on %1$I; drop policy everyone on %1$I; alter table %1$I disable row level security',
                      p.relation)
        from present p where p.relation not in (select w.relation from wanted w)
    loop
        execute item.statement;
    end loop;
end $$;
