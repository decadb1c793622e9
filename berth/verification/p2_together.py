"""P2: an allocation, its claim, its operation record and its event are there together or not at all."""

from __future__ import annotations

from berth.verification.verdict import Connection, Verdict

WITHOUT_CLAIM = """
select a.id, a.claim_id from allocations a left join claims c
    on c.id = a.claim_id and c.owner_kind = 'allocation' and c.owner_id = a.id
       and c.tenant_id = a.tenant_id and c.node_id = a.node_id
where c.id is null
"""
WITH_OTHER_OPERATION = """
select a.id, a.operation_key from allocations a
    join operations o on o.scope = a.tenant_id and o.key = a.operation_key
where o.fingerprint <> a.operation_fingerprint or o.subject_id is distinct from a.id or o.status is distinct from 201
"""
WITHOUT_OPERATION = """
select a.id, a.operation_key from allocations a
    left join operations o on o.scope = a.tenant_id and o.key = a.operation_key
where o.key is null and a.requested_at > clock_timestamp() - make_interval(secs => %(retention_seconds)s)
"""
WITHOUT_EVENT = """
with told as (
    select subject from log where event_type = 'provisioning.requested'
    union all
    select subject from outbox where event_type = 'provisioning.requested'
)
select a.id from allocations a left join told t on t.subject = 'allocations/' || a.id where t.subject is null
"""
EVENT_WITHOUT_ALLOCATION = """
select e.version, e.subject from log e left join allocations a on e.subject = 'allocations/' || a.id
where e.event_type = 'provisioning.requested' and a.id is null
"""
CLAIM_WITHOUT_OWNER = """
select c.id, c.owner_id from claims c left join allocations a on a.id = c.owner_id and a.claim_id = c.id
where c.owner_kind = 'allocation' and a.id is null
"""
OPERATION_WITHOUT_EFFECT = """
select o.scope, o.key, o.subject_id from operations o left join allocations a on a.id = o.subject_id
where o.status = 201 and a.id is null and o.body::jsonb ? 'allocation_id'
"""
UNFINISHED_OPERATION = "select scope, key from operations where status is null"


def check_together(connection: Connection, retention_seconds: float) -> Verdict:
    """Each direction of P2. An operation record may be gone once it is older than the retention window."""
    verdict = Verdict("P2", "an allocation, its claim, its operation and its event exist together")
    verdict.count(connection, "select count(*) from allocations")
    verdict.scan(connection, WITHOUT_CLAIM, "allocation {0} has no claim of its own (it names claim {1})")
    verdict.scan(connection, WITH_OTHER_OPERATION, "allocation {0} and the operation stored under its key {1} disagree")
    verdict.scan(
        connection,
        WITHOUT_OPERATION,
        "allocation {0} has no operation record (key {1})",
        retention_seconds=retention_seconds,
    )
    verdict.scan(connection, WITHOUT_EVENT, "allocation {0} has no provisioning.requested event")
    verdict.scan(connection, EVENT_WITHOUT_ALLOCATION, "event {0} speaks of {1}, which does not exist")
    verdict.scan(
        connection, CLAIM_WITHOUT_OWNER, "claim {0} belongs to allocation {1}, which does not exist or holds another"
    )
    verdict.scan(
        connection, OPERATION_WITHOUT_EFFECT, "operation {1} of {0} answers with allocation {2}, which does not exist"
    )
    verdict.scan(connection, UNFINISHED_OPERATION, "operation {1} of {0} was committed without an answer")
    return verdict
