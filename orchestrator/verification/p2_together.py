"""P2: an allocation, its claim, its operation record and its events are there together or not at all."""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

LOG_SPREAD_SECONDS = 60
"""Longer than any transaction lasts: so far apart can two events be whose versions are neighbours."""

WITH_OTHER_OPERATION = """
select a.id, a.operation_key from allocations a
    join operations o on o.scope = a.tenant_id and o.key = a.operation_key
where o.fingerprint <> a.operation_fingerprint or o.subject_id is distinct from a.id or o.status is distinct from 201
"""
# What a reservation starts by itself has no operation, what replaces a faulty allocation has that of its report, and an
# adoption has that of its operator. A record may be gone when its time is over; then the allocation's own key and fingerprint
# stand in for it.
WITHOUT_OPERATION = """
select a.id, a.operation_key from allocations a
    left join operations o on o.scope = a.tenant_id and o.key = a.operation_key
where o.key is null and not (a.reservation_id is not null and a.operation_key like 'starts_at:%%')
  and not exists (select from fault_reports f where f.replacement_id = a.id and a.operation_key = 'replaces:' || f.id)
  and not (a.adoption is not null and a.operation_key like 'adopts:%%')
  and (a.requested_at > clock_timestamp() - make_interval(secs => %(retention_seconds)s)
       or a.operation_key = '' or octet_length(a.operation_fingerprint) <> 32)
"""
# Each transition that emits has exactly one event, of the same instant, and the other way round. A release begun anew is
# emitted without a transition, and so is the start of an allocation that waited for its units.
# What retention has taken from the log's beginning cannot be asked for.
UNTOLD = """
with kinds (to_state, event_type) as (values
    ('requested', 'provisioning.requested'), ('active', 'provisioning.active'), ('failed', 'provisioning.failed'),
    ('releasing', 'provisioning.releasing.requested'), ('released', 'provisioning.releasing.completed'),
    ('release_failed', 'provisioning.release_failed')
), emitted (emitted_as, event_type) as (
    select event_type, event_type from kinds union all values ('provisioning.waiting', 'provisioning.requested')
), kept as (
    select case when f.version > 1 then l.occurred_at + make_interval(secs => %(spread_seconds)s) else '-infinity' end as since
    from log l cross join log_first f order by l.version limit 1
), sides as (
    select 'allocations/' || l.allocation_id as subject, k.event_type, l.at, 1 as steps, 0 as events
    from allocation_timeline l join kinds k using (to_state)
    where l.kind = 'transition' and l.at >= coalesce((select since from kept), '-infinity')
    union all
    select e.subject, k.event_type, e.occurred_at, 0, 1 from log e join emitted k on k.emitted_as = e.event_type
    where e.occurred_at >= coalesce((select since from kept), '-infinity')
      and (k.emitted_as <> 'provisioning.requested' or coalesce(e.payload ->> 'turned_over', '') <> 'false')
    union all
    select e.subject, k.event_type, e.occurred_at, 0, 1 from outbox e join emitted k on k.emitted_as = e.event_type
    where k.emitted_as <> 'provisioning.requested' or coalesce(e.payload ->> 'turned_over', '') <> 'false'
), counted as (
    select subject, event_type, at, sum(steps) as steps, sum(events) as events from sides group by subject, event_type, at
)
select subject, event_type, at, steps, events from counted
where steps > events or events > 1
   or (steps < events and event_type <> 'provisioning.releasing.requested'
       and exists (select from allocations a where 'allocations/' || a.id = counted.subject))
"""
TOLD_TO_ANOTHER = """
with named as materialized (
    select id, tenant_id, correlation_id, 'allocations/' || id as subject from allocations
)
select e.version, e.subject, case when a.id is null then 'which does not exist'
                                  else 'and names another allocation, tenant or correlation' end
from log e left join named a on a.subject = e.subject
where case when a.id is null
           then e.event_type = 'provisioning.requested'
                and not exists (select from archived_allocations x where e.subject = 'allocations/' || x.allocation_id)
           else e.tenant_id is distinct from a.tenant_id or e.correlation_id <> a.correlation_id
                or e.payload ->> 'allocation_id' is distinct from a.id::text end
"""
# Most claims have one range, so their parts need not be summed.
OTHER_CLAIM = """
select a.id, case when c.id is null then format('has no claim (it names claim %%s)', a.claim_id)
                  else format('says %%s GPUs and holds other units: %%s', a.gpus, c.units) end
from allocations a left join claims c
    on c.id = a.claim_id and c.owner_kind = 'allocation' and c.owner_id = a.id
       and c.tenant_id = a.tenant_id and c.node_id = a.node_id
where a.gpus is distinct from case when c.units = int8multirange(range_merge(c.units)) then upper(c.units) - lower(c.units)
                                   else (select sum(upper(part) - lower(part)) from unnest(c.units) part) end
"""
# A closed claim whose successor began when it ended is history.
CLAIM_WITHOUT_OWNER = """
select c.id, c.owner_id from claims c left join allocations a on a.id = c.owner_id and a.claim_id = c.id
where c.owner_kind = 'allocation' and a.id is null and not exists (
    select from claims s join allocations b on b.id = s.owner_id
    where s.owner_id = c.owner_id and s.owner_kind = 'allocation' and s.tenant_id = c.tenant_id and s.node_id = c.node_id
      and s.units = c.units and lower(s.during) = c.closed_at and s.id > c.id)
"""
# A fault report names its allocation, which may be archived while the operation is kept.
OPERATION_WITHOUT_EFFECT = """
with others as materialized (
    select o.scope, o.key, o.subject_id, o.body from operations o left join allocations a on a.id = o.subject_id
    where o.status = 201 and a.id is null
)
select scope, key, subject_id from others
where body::jsonb ? 'allocation_id' and not body::jsonb ? 'report_id'
  and not exists (select from archived_allocations x where x.allocation_id = others.subject_id)
"""
# A tenant's operation is emitted to the tenant; what an operator does may be a tenant's event or none's.
# What retention has taken from the log's beginning cannot be checked.
UNTOLD_OPERATION = """
select o.scope, o.key, o.code from operations o left join tenants t on t.id = o.scope
where o.status is not null and not exists (
    select from (select operation_key, tenant_id from log union all select operation_key, tenant_id from outbox) e
    where e.operation_key = o.key and (t.id is null or e.tenant_id = o.scope)
) and (coalesce((select min(version) from log), 1) = 1
       or o.created_at > (select occurred_at + make_interval(secs => %(spread_seconds)s) from log order by version limit 1))
"""
UNFINISHED_OPERATION = "select scope, key from operations where status is null"


def check_together(connection: Connection, bounds: Bounds) -> Verdict:
    """Each direction of P2. An operation record may be gone once it is older than the retention window."""
    verdict = Verdict("P2", "an allocation, its claim, its operation and its events exist together")
    verdict.count(connection, "select count(*) from allocations")
    verdict.scan(connection, OTHER_CLAIM, "allocation {0} {1}")
    verdict.scan(connection, WITH_OTHER_OPERATION, "allocation {0} and the operation stored under its key {1} disagree")
    verdict.scan(
        connection,
        WITHOUT_OPERATION,
        "allocation {0} has no operation record (key {1})",
        retention_seconds=bounds.operation_retention_seconds,
    )
    verdict.scan(
        connection,
        UNTOLD,
        "{0}: {3} transitions and {4} events {1} at {2}",
        spread_seconds=LOG_SPREAD_SECONDS,
    )
    verdict.scan(connection, TOLD_TO_ANOTHER, "event {0} speaks of {1}, {2}")
    verdict.scan(
        connection, CLAIM_WITHOUT_OWNER, "claim {0} belongs to allocation {1}, which does not exist or holds another"
    )
    verdict.scan(
        connection, OPERATION_WITHOUT_EFFECT, "operation {1} of {0} answers with allocation {2}, which does not exist"
    )
    verdict.scan(
        connection,
        UNTOLD_OPERATION,
        "operation {1} of {0} ({2}) has no event in the log",
        spread_seconds=LOG_SPREAD_SECONDS,
    )
    verdict.scan(connection, UNFINISHED_OPERATION, "operation {1} of {0} was committed without an answer")
    return verdict
