-- Gives each role of migrations/roles.py the rights that its process needs, and no others. A role owns nothing, so it cannot change
-- the schema or a function, or switch a trigger off. s: select, i: insert, u: update (also a row lock), d: delete, c: select the
-- columns that `hidden` does not name, x: usage of a sequence, execution of a function that runs as the owner of the schema.
-- A relation that is not listed, and a partition, is closed to all. Only what differs is granted or revoked, so that a
-- repetition touches no row of the catalogue that running processes change (`log_extend`).
do $$
declare
    item record;
begin
    for item in
        with given (name, public_api, node_api, issuer, worker, webhooks, audit_stream, relay, operator, read_only) as (values
            ('alembic_version',             's',     's',     's',     's',     's',     's',     's',     's',     's'),
            ('allocation_absences',         'sud',   '',      '',      'siud',  '',      '',      '',      'sd',    's'),
            ('allocation_timeline',         'si',    'si',    '',      'si',    '',      '',      '',      'sd',    's'),
            ('allocations',                 'siu',   'su',    '',      'siu',   '',      '',      '',      'sud',   'c'),
            ('api_keys',                    'siud',  '',      '',      '',      '',      '',      '',      'si',    'c'),
            ('approvals',                   'siu',   '',      '',      'sud',   '',      '',      '',      's',     'c'),
            ('archive_segments',            's',     '',      '',      '',      '',      '',      '',      'si',    's'),
            ('archive_uses',                '',      '',      '',      '',      's',     '',      '',      'siud',  's'),
            ('archived_allocations',        's',     '',      '',      '',      '',      '',      '',      'si',    's'),
            ('attestation_challenges',      'siud',  'siud',  '',      '',      '',      '',      '',      's',     'c'),
            ('audit',                       's',     '',      '',      '',      '',      '',      '',      'si',    's'),
            ('audit_anchor',                's',     '',      '',      '',      '',      '',      '',      's',     's'),
            ('audit_batches',               'siud',  'siud',  '',      '',      '',      '',      '',      '',      's'),
            ('audit_chain',                 's',     '',      '',      '',      '',      's',     '',      's',     's'),
            ('audit_head',                  '',      '',      '',      '',      '',      '',      '',      's',     's'),
            ('audit_pending',               'si',    'i',     'i',     'i',     '',      '',      '',      'si',    's'),
            ('audit_streams',               '',      '',      '',      '',      '',      'su',    '',      'sd',    's'),
            ('awaited_inventories',         's',     '',      '',      'sd',    '',      '',      '',      's',     's'),
            ('bmc_credentials',             'sid',   'sid',   '',      's',     '',      '',      '',      's',     'c'),
            ('bmc_tasks',                   'siud',  'su',    '',      'siud',  '',      '',      '',      's',     'c'),
            ('balances',                    'siu',   '',      '',      'su',    '',      '',      '',      's',     's'),
            ('certificate_requests',        'siu',   'si',    'sud',   '',      '',      '',      '',      's',     's'),
            ('claims',                      'siud',  'su',    '',      'siud',  '',      '',      '',      'sd',    's'),
            ('console_sessions',            'siu',   'su',    '',      'sud',   '',      '',      '',      's',     'c'),
            ('consumer_positions',          'siud',  '',      '',      'siu',   '',      '',      'siu',   'siu',   's'),
            ('dead_letters',                'su',    '',      '',      'siud',  '',      '',      '',      's',     'c'),
            ('deploy_runs',                 'siud',  's',     '',      'siud',   '',      '',      '',      's',     'c'),
            ('deploy_systems',              'siud',  'su',    'su',    'siud',  '',      '',      '',      's',     'c'),
            ('deploy_tasks',                'siud',  's',     '',      'siud',  '',      '',      '',      's',     'c'),
            ('enrolment_tokens',            'siud',  '',      '',      '',      '',      '',      '',      's',     'c'),
            ('fault_reports',               'siu',   '',      '',      'sud',   '',      '',      '',      's',     's'),
            ('function_generation',         's',     's',     's',     's',     's',     's',     's',     's',     's'),
            ('firmware_lists',              'siud',  '',      '',      's',     '',      '',      '',      's',     's'),
            ('hardware_history',            'si',    '',      '',      'sid',   '',      '',      '',      's',     's'),
            ('hardware_places',             'siud',  '',      '',      'siud',  '',      '',      '',      's',     's'),
            ('hardware_repairs',            'siu',   '',      '',      'sd',    '',      '',      '',      's',     's'),
            ('images',                      'siu',   '',      '',      's',     '',      '',      '',      's',     's'),
            ('kv_keys',                     'siud',  '',      '',      'sd',    '',      '',      '',      's',     'c'),
            ('kv_namespaces',               'siu',   '',      '',      'su',    '',      '',      '',      's',     's'),
            ('ledger',                      'si',    '',      '',      'si',    '',      '',      '',      's',     's'),
            ('live_rows',                   'siud',  '',      '',      'siud',  '',      '',      '',      's',     's'),
            ('log',                         'si',    '',      '',      's',     's',     '',      'si',    's',     'c'),
            ('log_cursors',                 's',     '',      '',      's',     's',     '',      '',      's',     's'),
            ('log_first',                   'su',    '',      '',      'su',    's',     '',      '',      'su',    's'),
            ('log_head',                    'su',    '',      '',      's',     's',     '',      'su',    's',     's'),
            ('log_stream',                  's',     '',      '',      '',      '',      '',      's',     'su',    's'),
            ('log_tenants',                 'siu',   '',      '',      '',      's',     '',      'siu',   's',     's'),
            ('log_truncation',              's',     '',      '',      's',     '',      '',      '',      's',     's'),
            ('maintenance_tasks',           'siu',   '',      '',      'sud',   '',      '',      '',      's',     's'),
            ('maintenance_units',           'siu',   '',      '',      'sud',   '',      '',      '',      's',     's'),
            ('maintenance_windows',         'siu',   '',      '',      'sud',   '',      '',      '',      's',     's'),
            ('metering_intervals',          's',     '',      '',      'siu',   '',      '',      '',      's',     's'),
            ('network_addresses',           'sd',    's',     '',      'sid',   '',      '',      '',      's',     's'),
            ('network_vnis',                '',      '',      '',      'sx',    '',      '',      '',      's',     's'),
            ('network_vlans',               'su',    '',      '',      'siud',  '',      '',      '',      's',     's'),
            ('networks',                    'sud',   'su',    '',      'siu',   '',      '',      '',      's',     's'),
            ('node_certificates',           'su',    's',     'sid',   '',      '',      '',      '',      's',     's'),
            ('slot_quarantines',            'siu',   '',      '',      'siu',   '',      '',      '',      's',     's'),
            ('node_bmcs',                   'siud',  'su',    '',      'su',    '',      '',      '',      's',     's'),
            ('node_accepted_pcrs',          'siu',   '',      '',      's',     '',      '',      '',      's',     's'),
            ('node_attestations',           'si',    '',      '',      'sud',   '',      '',      '',      's',     's'),
            ('node_burn_ins',               'si',    '',      '',      'sud',   '',      '',      '',      's',     's'),
            ('node_drains',                 'siud',  '',      '',      'su',    '',      '',      '',      's',     's'),
            ('node_gpu_resets',             'si',    '',      '',      'sud',   '',      '',      '',      's',     's'),
            ('node_health',                 'su',    '',      '',      'siu',   '',      '',      '',      's',     's'),
            ('node_health_reports',         's',     '',      '',      'sid',   '',      '',      '',      's',     's'),
            ('node_machines',               's',     '',      '',      'siu',   '',      '',      '',      's',     's'),
            ('node_orphans',                'su',    '',      '',      'siu',   '',      '',      '',      's',     's'),
            ('node_tasks',                  'su',    'su',    '',      'siud',  '',      '',      '',      'sd',    'c'),
            ('node_topologies',             'su',    '',      '',      'siu',   '',      '',      '',      's',     's'),
            ('node_tpms',                   'siu',   's',     'su',    's',     '',      '',      '',      's',     's'),
            ('nodes',                       'siu',   'su',    'su',    'su',    '',      '',      '',      's',     's'),
            ('notification_subscriptions',  'siud',  '',      '',      's',     '',      '',      '',      's',     's'),
            ('operations',                  'siud',  '',      '',      'siud',  '',      '',      '',      's',     'c'),
            ('outbox',                      'sid',   'si',    '',      'si',    'si',    '',      'sd',    's',     'c'),
            ('pool_attestations',           'siu',   's',     's',     's',     '',      '',      '',      's',     's'),
            ('pools',                       'siu',   'su',    '',      'su',    '',      '',      '',      's',     's'),
            ('published_ports',             'sd',    's',     '',      'sid',   '',      '',      '',      's',     's'),
            ('regions',                     'siu',   '',      '',      's',     '',      '',      '',      's',     's'),
            ('reservation_watermark',       'su',    '',      '',      'su',    '',      '',      '',      's',     's'),
            ('reservations',                'siud',  '',      '',      'siud',  '',      '',      '',      's',     'c'),
            ('reservation_states',          's',     '',      '',      's',     '',      '',      '',      's',     's'),
            ('resources',                   'siu',   '',      '',      'su',    '',      '',      '',      's',     's'),
            ('restores',                    's',     's',     's',     's',     's',     's',     's',     's',     's'),
            ('restore_replays',             's',     '',      '',      'su',    '',      '',      '',      's',     'c'),
            ('retention_policies',          'siud',  '',      '',      's',     '',      '',      '',      's',     's'),
            ('sku_prices',                  'si',    '',      '',      's',     '',      '',      '',      's',     's'),
            ('site_agent_certificate_requests', 'siud', 'si', 'sud', '',   '',      '',      '',      's',     's'),
            ('site_agent_certificates',     'sud',   's',     'sid',   '',      '',      '',      '',      's',     's'),
            ('site_agent_tokens',           'siud',  '',      '',      '',      '',      '',      '',      's',     'c'),
            ('site_agents',                 'siud',  'su',    'su',    's',     '',      '',      '',      's',     's'),
            ('node_ports',                  'sid',   '',      '',      's',     '',      '',      '',      's',     's'),
            ('node_segments',               'siud',  'su',    '',      'siu',   '',      '',      '',      's',     's'),
            ('site_segments',               'siud',  's',     '',      's',     '',      '',      '',      's',     's'),
            ('tenant_segments',             'sd',    'su',    '',      'siud',  '',      '',      '',      's',     's'),
            ('sites',                       'siud',  'su',    '',      'su',    '',      '',      '',      's',     's'),
            ('skus',                        'siu',   '',      '',      's',     '',      '',      '',      's',     's'),
            ('slots',                       'siu',   '',      '',      'su',    '',      '',      '',      's',     's'),
            ('sql_functions',               's',     's',     's',     's',     's',     's',     's',     's',     's'),
            ('ssh_keys',                    'sid',   '',      '',      's',     '',      '',      '',      's',     's'),
            ('tenant_invitations',          'siud',  '',      '',      '',      '',      '',      '',      's',     'c'),
            ('tenant_members',              'siud',  '',      '',      '',      '',      '',      '',      's',     's'),
            ('tenant_quotas',               'siud',  '',      '',      'su',    '',      '',      '',      's',     's'),
            ('tenant_rows',                 'siud',  '',      '',      'siud',  '',      '',      '',      's',     's'),
            ('tenants',                     'siu',   '',      '',      'su',    's',     '',      '',      's',     's'),
            ('webhook_deliveries',          'siu',   '',      '',      '',      'siud',  '',      '',      'sud',   'c'),
            ('webhooks',                    'siu',   '',      '',      '',      'sud',   '',      '',      's',     'c'),
            ('wipe_certificates',           's',     '',      '',      'si',    '',      '',      '',      'sd',    's'),
            ('wipe_chains',                 '',      '',      '',      'siu',   '',      '',      '',      's',     's'),
            ('wipe_key_sets',               's',     '',      '',      'si',    '',      '',      '',      's',     's'),
            ('fences',                      'x',     '',      '',      'x',     '',      '',      '',      's',     ''),
            ('claims_id_seq',               'x',     '',      '',      'x',     '',      '',      '',      's',     ''),
            ('reservation_positions',       'x',     '',      '',      '',      '',      '',      '',      's',     ''),
            ('unit_numbers',                'x',     '',      '',      '',      '',      '',      '',      's',     ''),
            ('audit_advance',               'x',     '',      '',      'x',     '',      '',      '',      '',      ''),
            ('audit_forget',                '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('audit_stream_begin',          '',      '',      '',      '',      '',      'x',     '',      '',      ''),
            ('expire_holds',                'x',     '',      '',      '',      '',      '',      '',      '',      ''),
            ('lock_overdue_holds',          'x',     '',      '',      '',      '',      '',      '',      '',      ''),
            ('log_extend',                  'x',     '',      '',      '',      '',      '',      'x',     '',      ''),
            ('log_truncate',                '',      '',      '',      'x',     '',      '',      '',      '',      ''),
            ('log_accept_timeline',         '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('log_skip_versions',           '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('log_resume_timeline',         '',      '',      '',      '',      '',      '',      'x',     '',      ''),
            ('log_open_epoch',              '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('restore_begin',               '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('restore_raise_sequences',     '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('restore_skip_versions',       '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('restore_end_sessions',        '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('restore_close_nodes',         '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('restore_end_runs',            '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('restore_keep_node',           '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('restore_renew_fences',        '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('restore_note_export',         '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('restore_report_losses',       '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('restore_waive_export',        '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('restore_note_ends',           '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('restore_adopt',               '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('restore_adopt_agents',        '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('restore_adopt_passwords',     '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('restore_revoke_agents',       '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('restore_revoke',              '',      '',      '',      '',      '',      '',      '',      'x',     ''),
            ('restore_close',               '',      '',      '',      '',      '',      '',      '',      'x',     '')
        ), hidden (relation, columns) as (values
            ('allocations', array['user_data']), ('api_keys', array['secret_hash']), ('approvals', array['secret_hash']), ('attestation_challenges', array['secret']),
            ('console_sessions', array['secret_sha256', 'envelope']), ('dead_letters', array['excerpt']),
            ('bmc_credentials', array['sealed']), ('bmc_tasks', array['envelope']), ('deploy_systems', array['token_hash', 'attestation_secret']),
            ('deploy_runs', array['parameters']), ('deploy_tasks', array['parameters']),
            ('site_agent_tokens', array['token_hash']), ('tenant_invitations', array['token_hash']),
            ('enrolment_tokens', array['token_hash']), ('kv_keys', array['value']), ('log', array['payload']),
            ('node_tasks', array['envelope']), ('operations', array['body']), ('outbox', array['payload']),
            ('reservations', array['template']), ('restore_replays', array['detail']), ('webhook_deliveries', array['response_excerpt']),
            ('webhooks', array['url', 'signing', 'keys'])
        ), allowed (name, role, letters) as (
            select g.name, r.role, r.letters from given g cross join lateral (values
                ('berth_public_api', public_api), ('berth_node_api', node_api), ('berth_issuer', issuer),
                ('berth_worker', worker), ('berth_webhooks', webhooks), ('berth_audit_stream', audit_stream),
                ('berth_relay', relay),
                ('berth_operator', operator), ('berth_read_only', read_only)) r(role, letters)
        ), roles as (
            select o.rolname as role, o.oid from pg_roles o where o.rolname in (select a.role from allowed a)
        ), relations as (
            select c.oid, c.oid::regclass as relation, c.relkind, o.role, o.oid as role_id,
                   case when c.relispartition then '' else coalesce(a.letters, '') end as letters, h.columns as hidden
            from pg_class c cross join roles o
                 left join allowed a on a.name = c.relname and a.role = o.role
                 left join hidden h on h.relation = c.relname
            where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v', 'S')
        ), functions as (
            select p.oid::regprocedure as function, p.oid, o.role, coalesce(a.letters, '') = 'x' as wanted,
                   exists (select from aclexplode(p.proacl) x where x.grantee = o.oid) as granted
            from pg_proc p cross join roles o left join allowed a on a.name = p.proname and a.role = o.role
            where p.pronamespace = 'public'::regnamespace and p.prosecdef
        ), wanted (thing, role, right_name, wanted, granted) as (
            select format('%s', t.relation), t.role, r.name, strpos(t.letters, r.letter) > 0,
                   has_table_privilege(t.role_id, t.oid, r.name)
            from relations t cross join (values ('s', 'select'), ('i', 'insert'), ('u', 'update'), ('d', 'delete'),
                ('-', 'truncate'), ('-', 'references'), ('-', 'trigger'), ('-', 'maintain')) r(letter, name)
            where t.relkind <> 'S'
            union all
            select format('%s', t.relation), t.role, format('select (%I)', a.attname),
                   t.letters = 'c' and a.attname <> all (coalesce(t.hidden, '{}')),
                   exists (select from aclexplode(a.attacl) x where x.grantee = t.role_id)
            from relations t join pg_attribute a on a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped
            where t.relkind <> 'S'
            union all
            select format('sequence %s', t.relation), t.role, r.name, strpos(t.letters, r.letter) > 0,
                   case when t.relkind = 'S' then has_sequence_privilege(t.role_id, t.oid, r.name) else false end
            from relations t cross join (values ('x', 'usage'), ('s', 'select'), ('-', 'update')) r(letter, name)
            where t.relkind = 'S'
            union all
            select format('function %s', f.function), f.role, 'execute', f.wanted, f.granted from functions f
        )
        select format(case when w.wanted then 'grant %s on %s to %I' else 'revoke %s on %s from %I' end,
                      w.right_name, w.thing, w.role) as statement
        from wanted w where w.wanted <> w.granted
        union all
        select format('revoke execute on function %s from public', p.oid::regprocedure) from pg_proc p
        where p.pronamespace = 'public'::regnamespace and p.prosecdef and has_function_privilege('public', p.oid, 'execute')
    loop
        execute item.statement;
    end loop;
end $$;
