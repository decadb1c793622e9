"""A deleted tenant holds nothing, and nothing acts for it or keeps the log for it."""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

HOLDING = """
select t.id, h.what, h.id from tenants t join (
    select tenant_id, 'allocation' as what, id::text from allocations where state not in ('released', 'failed')
    union all
    select tenant_id, 'reservation', id::text from reservations where state in ('hold', 'confirmed')
    union all
    select tenant_id, 'claim', id::text from claims where closed_at is null
) h on h.tenant_id = t.id
where t.state = 'deleted'
"""
ACTING = """
select t.id, a.what, a.name from tenants t join (
    select tenant_id, 'API key' as what, id::text as name from api_keys where revoked_at is null
    union all
    select tenant_id, 'SSH key', id::text from ssh_keys
    union all
    select tenant_id, 'webhook', id::text from webhooks where state <> 'deleted'
    union all
    select scope, 'subscription', name from notification_subscriptions
    union all
    select scope, 'retention policy', policy_id from retention_policies
    union all
    select tenant_id, 'quota', gpus_used::text from tenant_quotas
) a on a.tenant_id = t.id
where t.state = 'deleted'
"""
# Before the deletion such an event comes from the tenant; billing and refusals may follow it.
LATER = """
select l.version, l.event_type, t.id from tenants t join log l on l.tenant_id = t.id and l.occurred_at > t.deleted_at
where t.state = 'deleted' and l.event_type in ('provisioning.requested', 'reservation.held', 'transaction')
"""


def check_deleted_tenants(connection: Connection, _: Bounds) -> Verdict:
    """Deleted tenants: no live allocation, reservation or claim; no credential; nothing was created later."""
    verdict = Verdict("tenants", "a deleted tenant holds nothing, and nothing acts for it")
    verdict.count(connection, "select count(*) from tenants where state = 'deleted'")
    verdict.scan(connection, HOLDING, "tenant {0} is deleted and has {1} {2}")
    verdict.scan(connection, ACTING, "tenant {0} is deleted and still has {1} {2}")
    verdict.scan(connection, LATER, "event {0}, {1}, is of tenant {2} and from after its deletion")
    return verdict
