"""P6: a unit is reusable only after its cleanup is proven, or an admin stated on the record that nothing is left on it.

Proof is one of: the allocation's release result, or a completed task's, with `released`, `wiped` and `leases_released`
all true; an audited force-cleanup; or that no task for the allocation ever reached a node, so nothing could be on it.
"""

from __future__ import annotations

from berth.verification.verdict import Connection, Verdict

UNPROVEN = """
with freed as (
    select c.id, c.owner_id from claims c
    where c.owner_kind = 'allocation' and c.occupied_from is not null and not c.occupied
), proven as (
    select id as allocation_id from allocations
    where release_result @> '{"released": true, "wiped": true, "leases_released": true}'
    union
    select allocation_id from node_tasks
    where state = 'completed' and result @> '{"released": true, "wiped": true, "leases_released": true}'
    union
    select substr(subject, length('allocations/') + 1)::uuid from audit
    where subject like 'allocations/%%' and replace(action, '-', '_') like '%%force_cleanup%%'
), dispatched as (
    select distinct allocation_id from node_tasks where dispatched_at is not null and allocation_id is not null
)
select f.id, f.owner_id, coalesce(a.state, 'gone') from freed f
    left join proven p on p.allocation_id = f.owner_id
    left join dispatched d on d.allocation_id = f.owner_id
    left join allocations a on a.id = f.owner_id
where p.allocation_id is null and (d.allocation_id is not null or a.state is null or a.active_at is not null)
"""
RELEASED_UNPROVEN = """
select a.id from allocations a
where a.state = 'released' and a.active_at is not null
  and not coalesce(a.release_result @> '{"released": true, "wiped": true, "leases_released": true}', false)
  and not exists (select from audit u where u.subject = 'allocations/' || a.id
                  and replace(u.action, '-', '_') like '%%force_cleanup%%')
"""
RELEASED_STILL_HELD = """
select a.id, c.id from allocations a join claims c on c.id = a.claim_id
where a.state = 'released' and c.closed_at is null
"""
LIVE_BUT_FREE = """
select a.id, a.state, c.id from allocations a join claims c on c.id = a.claim_id
where a.state not in ('released', 'failed') and (c.closed_at is not null or not c.occupied)
"""
TOO_EARLY = """
with spans as (
    select unit, c.id, lower(c.during) as starts, coalesce(c.occupied_until, 'infinity') as cleaned,
           c.occupied_from = lower(c.during) as immediate
    from claims c cross join lateral unnest(c.units) part
         cross join lateral generate_series(lower(part), upper(part) - 1) unit
    where c.occupied_from is not null
), ordered as (
    select unit, id, starts, immediate, max(cleaned) over
           (partition by unit order by starts, id rows between unbounded preceding and 1 preceding) as cleaned_before
    from spans
)
select id, unit, starts, cleaned_before::text from ordered where immediate and starts < cleaned_before order by unit, starts
"""


def check_proven_cleanup(connection: Connection) -> Verdict:
    """No claim gave up its units without proof, and none began on units before the one before it was cleaned up."""
    verdict = Verdict("P6", "a unit is reused only after its cleanup is proven")
    verdict.count(connection, "select count(*) from claims where occupied_from is not null")
    verdict.scan(
        connection, UNPROVEN, "claim {0} freed its units, but nothing proves the cleanup of allocation {1} ({2})"
    )
    verdict.scan(connection, RELEASED_UNPROVEN, "allocation {0} is released without a release result that proves it")
    verdict.scan(connection, RELEASED_STILL_HELD, "allocation {0} is released, but its claim {1} still holds its units")
    verdict.scan(connection, LIVE_BUT_FREE, "allocation {0} is {1}, but its claim {2} gave its units away")
    verdict.scan(connection, TOO_EARLY, "claim {0} began on unit {1} at {2}, before the cleanup that ended at {3}")
    return verdict
