-- What a tenant uses of each quota, by its name; GPUs are in `tenant_quotas`. One statement, so one snapshot.
create or replace function quotas_used(p_tenant uuid) returns jsonb language plpgsql stable set enable_seqscan = off as $$
begin
    return (
        select jsonb_build_object(
            'operations', 0, 'reservations', 0, 'holds', 0,
            'webhooks', (select count(*) from webhooks w where w.tenant_id = p_tenant and w.state <> 'deleted'),
            'subscriptions', (select count(*) from notification_subscriptions s where s.scope = p_tenant),
            'retention_policies', (select count(*) from retention_policies r where r.scope = p_tenant),
            'ssh_keys', (select count(*) from ssh_keys k where k.tenant_id = p_tenant),
            'api_keys', (select count(*) from api_keys k where k.tenant_id = p_tenant and k.revoked_at is null
                           and (k.expires_at is null or k.expires_at > clock_timestamp())),
            'members', (select count(*) from tenant_members m where m.tenant_id = p_tenant)
                     + (select count(*) from tenant_invitations i where i.tenant_id = p_tenant and i.accepted_at is null
                          and i.revoked_at is null and i.expires_at > clock_timestamp()),
            'kv_keys', coalesce(n.keys, 0), 'kv_bytes', coalesce(n.bytes, 0),
            'log_bytes_per_day',
                coalesce(n.log_bytes, 0) * (n.log_day is not distinct from (clock_timestamp() at time zone 'UTC')::date)::integer)
            || coalesce((select jsonb_object_agg(r.kind, r.number) from (
                   select kind, sum(number)::bigint as number from tenant_rows t where t.tenant_id = p_tenant group by kind) r), '{}')
        from (select p_tenant as id) one left join kv_namespaces n on n.id = one.id);
end $$;
