-- The lowest version of the log that each reader needs; truncation drops nothing that a row here needs. The columns come
-- from tables of four nouns, so the view follows all of them.

create view log_cursors (kind, name, tenant_id, needs_from, since) as
select 'policy', p.policy_id, nullif(p.scope, '00000000-0000-0000-0000-000000000000'),
       greatest(1, p.prevent_truncate, h.version - p.versions_max), p.updated_at
from retention_policies p cross join log_head h
union all
select 'consumer', c.consumer, null, c.version + 1, c.updated_at from consumer_positions c
union all
select 'dead_letters', d.consumer, null, min(d.version), min(d.first_at) from dead_letters d where d.state = 'dead' group by d.consumer
union all
select 'subscription', s.name, nullif(s.scope, '00000000-0000-0000-0000-000000000000'),
       greatest(1, s.version + 1, h.version - s.versions_max), s.updated_at
from notification_subscriptions s cross join log_head h where s.kept_until > clock_timestamp()
union all
-- An enabled webhook needs the versions after its offset and those of its pending deliveries, within its bound. A
-- tenant's webhook that has reached the tenant's newest event needs nothing older than the next version.
select 'webhook', w.id::text, w.tenant_id,
       greatest(1, h.version - w.versions_max,
                least(case when w.tenant_id is not null and coalesce(t.version, 0) <= w.position then h.version else w.position end + 1,
                      (select min(d.version) from webhook_deliveries d where d.webhook_id = w.id and d.state = 'pending'))),
       w.updated_at
from webhooks w cross join log_head h left join log_tenants t on t.tenant_id = w.tenant_id
where w.state = 'enabled';
comment on view log_cursors is 'The lowest version of the log that each policy, consumer, dead letter, subscription and webhook needs.';
comment on column log_cursors.needs_from is 'This version and higher ones are needed.';
comment on column log_cursors.since is 'When the reader last moved.';
