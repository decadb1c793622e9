create or replace view log_cursors (kind, name, tenant_id, needs_from, since) as
select 'policy', p.policy_id, nullif(p.scope, '00000000-0000-0000-0000-000000000000'),
       greatest(1, p.prevent_truncate, h.version - p.versions_max), p.updated_at
from retention_policies p cross join log_head h
union all
select 'consumer', c.consumer, null, c.version + 1, c.updated_at from consumer_positions c
union all
-- A retry hands the event over as the log has it.
select 'dead_letters', d.consumer, null, min(d.version), min(d.first_at) from dead_letters d where d.state = 'dead' group by d.consumer;
drop table webhook_deliveries;
drop table webhooks;
