"""P9: every waiting state stores what it waits for, since when and until when, and something always ends it.

A wait that is overdue for longer than the rescuer's interval is a violation, not a warning: nothing ends it. Straight
after an outage of the worker that is true, and stops being true.
"""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

INCOMPLETE = """
select id, state, coalesce(waits_for, 'nothing') from allocations
where case when state in ('released', 'failed') then (waits_for, waits_since, waits_until) is distinct from (null, null, null)
           else waits_for is null or waits_since is null
                or (waits_until is null and state not in ('active', 'release_failed'))
                or (state = 'active' and guest_verb is not null and (waits_for = 'tenant' or waits_until is null)) end
"""
# A failed allocation's wait is on its claim. Without a deadline it may wait for an operator only.
UNITS_INCOMPLETE = """
select c.id, a.id, a.state, coalesce(c.waits_for, 'nothing') from claims c join allocations a on a.claim_id = c.id
where case when c.closed_at is not null then (c.waits_for, c.waits_since, c.waits_until) is distinct from (null, null, null)
           else a.state = 'failed' and (c.waits_for is null or c.waits_since is null
                                        or (c.waits_until is null and c.waits_for <> 'operator')) end
"""
ORPHANS_INCOMPLETE = """
select id, state, coalesce(waits_for, 'nothing') from node_orphans
where case when state = 'destroyed' then (waits_for, waits_since, waits_until) is distinct from (null, null, null)
           else waits_for is null or waits_since is null or (state = 'destroying' and waits_until is null) end
"""
# A hold waits for its deadline; a confirmed one for its window, which need not end.
RESERVATIONS_INCOMPLETE = """
select id, state, coalesce(waits_for, 'nothing') from reservations
where case when state in ('hold', 'confirmed')
           then waits_for is null or waits_since is null
                or (state = 'hold' and (waits_until is distinct from hold_until or expires_at is distinct from hold_until))
                or (state = 'confirmed' and waits_until is null and ends_at is not null)
           else (waits_for, waits_since, waits_until) is distinct from (null, null, null) end
"""
APPROVALS_INCOMPLETE = """
select id, state, coalesce(waits_for, 'nothing') from approvals
where case when state = 'pending' then waits_for is null or waits_since is null or waits_until is null
           else (waits_for, waits_since, waits_until) is distinct from (null, null, null) end
"""
# A lost allocation may be kept until its tenant acts; a degraded one recovers or becomes lost. An unreachable guest runs.
HEALTH_INCOMPLETE = """
select id, health_cause, case when health_until is null then 'without a deadline' else 'with the deadline ' || health_until end
from allocations where state = 'active' and health = 'degraded' and (health_until is null) <> (health_cause = 'guest_unreachable')
"""
# A deadline that never comes is none: no rescuer would ever look.
ENDLESS = """
select what, state, waits_since::text, waits_until::text from (
    select 'allocation ' || id as what, state, waits_since, waits_until from allocations
    union all select 'claim ' || id, 'of ' || owner_kind, waits_since, waits_until from claims
    union all select 'orphan ' || id, state, waits_since, waits_until from node_orphans
    union all select 'reservation ' || id, state, waits_since, waits_until from reservations
    union all select 'approval ' || id, state, waits_since, waits_until from approvals
    union all select 'fault report ' || id, waits_for, waits_since, waits_until from fault_reports
    union all select 'maintenance window ' || id, state, waits_since, waits_until from maintenance_windows
    union all select 'burn-in ' || id, 'open', waits_since, waits_until from node_burn_ins where ended_at is null
    union all select 'console ' || id, 'open', waits_since, waits_until from console_sessions where ended_at is null
    union all select 'GPU reset ' || id, 'open', waits_since, waits_until from node_gpu_resets where ended_at is null
    union all select 'attestation ' || id, 'open', waits_since, waits_until from node_attestations where ended_at is null
    union all select 'BMC task ' || id, kind, waits_since, waits_until from bmc_tasks where ended_at is null
    union all select 'deploy run ' || id, step, waits_since, waits_until from deploy_runs where ended_at is null
    union all select 'task of maintenance window ' || window_id, state, waits_since, waits_until from maintenance_tasks
    union all select 'allocation ' || id, health, health_since, health_until from allocations where state = 'active'
    union all select 'task ' || id, state, queued_at, expires_at from node_tasks where state in ('queued', 'dispatched')
) waiting where not isfinite(waits_until)
"""
# An orphan's destruction lets the tasks of its node's allocations go first, however long they take.
OVERDUE = """
with waiting as (
    select 'allocation ' || id as what, state, waits_for, waits_until from allocations where waits_until is not null
    union all
    select 'allocation ' || a.id, 'cleanup of failed', c.waits_for, c.waits_until
    from claims c join allocations a on a.id = c.owner_id where a.state = 'failed' and c.waits_until is not null
    union all
    select 'orphan ' || o.id, o.state, o.waits_for, o.waits_until from node_orphans o
    where o.waits_until is not null and not exists (
        select from node_tasks t where t.node_id = o.node_id and t.state in ('queued', 'dispatched'))
    union all
    select 'reservation ' || id, state, waits_for, waits_until from reservations where waits_until is not null
    union all
    select 'approval ' || id, state, waits_for, waits_until from approvals where waits_until is not null
    union all
    select 'fault report ' || id, 'replacing', waits_for, waits_until from fault_reports where waits_until is not null
    union all
    select 'maintenance window ' || id, state, waits_for, waits_until from maintenance_windows
    where waits_until is not null and not exists (
        select from maintenance_tasks k where k.window_id = maintenance_windows.id and k.state = 'running')
    union all
    select 'drain of node ' || d.node_id, 'open', d.waits_for, d.waits_until
    from node_drains d join nodes n on n.id = d.node_id and n.state = 'draining' where d.waits_until is not null
    union all
    select 'burn-in ' || id, 'open', waits_for, waits_until from node_burn_ins where ended_at is null
    union all
    select 'console ' || id, 'open', waits_for, waits_until from console_sessions where ended_at is null
    union all
    select 'GPU reset ' || id, 'open', waits_for, waits_until from node_gpu_resets where ended_at is null
    union all
    select 'attestation ' || id, 'open', waits_for, waits_until from node_attestations where ended_at is null
    union all
    select 'BMC task ' || id, kind, waits_for, waits_until from bmc_tasks where ended_at is null
    union all
    select 'deploy run ' || id, step, waits_for, waits_until from deploy_runs where ended_at is null
    union all
    select 'task of maintenance window ' || window_id || ' on node ' || node_id, state, waits_for, waits_until
    from maintenance_tasks where waits_until is not null
    union all
    select 'allocation ' || id, health, health_cause, health_until from allocations
    where state = 'active' and health_until is not null
    union all
    select 'task ' || t.id, t.state, 'node', t.expires_at from node_tasks t where t.state in ('queued', 'dispatched')
)
select what, state, waits_for, extract(epoch from clock_timestamp() - waits_until)::integer from waiting
where waits_until < clock_timestamp() - make_interval(secs => %(overdue_seconds)s) order by waits_until
"""


def check_complete_waits(connection: Connection, bounds: Bounds) -> Verdict:
    """Every wait is complete, what is over waits for nothing, and no deadline passed long ago."""
    verdict = Verdict("P9", "every wait says for what, since when, until when, and ends")
    verdict.count(connection, "select count(*) from allocations where state not in ('released', 'failed')")
    verdict.count(connection, "select count(*) from claims where closed_at is null and waits_for is not null")
    verdict.count(connection, "select count(*) from reservations where state in ('hold', 'confirmed')")
    verdict.count(connection, "select count(*) from approvals where state = 'pending'")
    verdict.count(connection, "select count(*) from maintenance_windows where waits_until is not null")
    verdict.count(connection, "select count(*) from allocations where state = 'active' and health is not null")
    verdict.count(connection, "select count(*) from node_burn_ins where ended_at is null")
    verdict.count(connection, "select count(*) from console_sessions where ended_at is null")
    verdict.count(connection, "select count(*) from node_gpu_resets where ended_at is null")
    verdict.count(connection, "select count(*) from node_attestations where ended_at is null")
    verdict.count(connection, "select count(*) from bmc_tasks where ended_at is null")
    verdict.count(connection, "select count(*) from deploy_runs where ended_at is null")
    verdict.scan(connection, INCOMPLETE, "allocation {0} is {1} and waits for {2}: that is incomplete")
    verdict.scan(connection, UNITS_INCOMPLETE, "claim {0} of allocation {1} ({2}) waits for {3}: that is incomplete")
    verdict.scan(connection, ORPHANS_INCOMPLETE, "orphan {0} is {1} and waits for {2}: that is incomplete")
    verdict.scan(connection, RESERVATIONS_INCOMPLETE, "reservation {0} is {1} and waits for {2}: that is incomplete")
    verdict.scan(connection, APPROVALS_INCOMPLETE, "approval {0} is {1} and waits for {2}: that is incomplete")
    verdict.scan(connection, HEALTH_INCOMPLETE, "allocation {0} is degraded ({1}) {2}")
    verdict.scan(connection, ENDLESS, "{0} ({1}) waits since {2} until {3}: that is no deadline")
    verdict.scan(
        connection,
        OVERDUE,
        "{0} ({1}) waits for {2} and is overdue by {3} s; is the worker running?",
        overdue_seconds=bounds.overdue_seconds,
    )
    return verdict
