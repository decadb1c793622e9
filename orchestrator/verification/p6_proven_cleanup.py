"""P6: a unit is reusable only after its cleanup is proven, or an admin stated on the record that nothing is left on it.

Proof is one of: the allocation's release result, or a task's completed under the claim's last fence, with `released`,
`wiped` and `leases_released` all true; an audited force-cleanup; or that no task for the allocation ever reached a node,
so nothing could be on it. It must be there before the next claim on the unit begins.
"""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

UNPROVEN = """
with proofs as (
    select id as allocation_id, released_at as at from allocations
    where release_result @> '{"released": true, "wiped": true, "leases_released": true}'
    union all
    select t.allocation_id, t.finished_at from node_tasks t
        join claims c on c.owner_id = t.allocation_id and c.fence = t.fence
    where t.state = 'completed' and t.result @> '{"released": true, "wiped": true, "leases_released": true}'
    union all
    select substr(subject, length('allocations/') + 1)::uuid, at from audit
    where subject like 'allocations/%%' and action = 'allocation.force_cleanup' and principal_kind = 'admin'
), proven as (
    select allocation_id, min(at) as at from proofs group by allocation_id
), dispatched as (
    select distinct allocation_id from node_tasks where dispatched_at is not null and allocation_id is not null
), freed as (
    select c.id, c.owner_id, c.units, c.occupied_from, c.occupied_until, coalesce(a.state, 'gone') as state,
           case when p.at is not null then p.at
                when d.allocation_id is null and a.state is not null and a.active_at is null then c.occupied_until
           end as proven_at
    from claims c
        left join proven p on p.allocation_id = c.owner_id
        left join dispatched d on d.allocation_id = c.owner_id
        left join allocations a on a.id = c.owner_id
    where c.owner_kind = 'allocation' and c.occupied_from is not null and not c.occupied and not exists (
        -- Its successor occupied the same units from the same instant: nothing was freed.
        select from claims s where s.owner_id = c.owner_id and s.owner_kind = 'allocation' and s.node_id = c.node_id
          and s.units = c.units and s.occupied_from = c.occupied_until and s.id > c.id)
), spans as (
    select unit, c.id, c.occupied_from as starts,
           greatest(coalesce(c.occupied_until, 'infinity'),
                    case when f.id is not null then coalesce(f.proven_at, 'infinity') end) as cleaned
    from claims c left join freed f on f.id = c.id
         cross join lateral unnest(c.units) part
         cross join lateral generate_series(lower(part), upper(part) - 1) unit
    where c.occupied_from is not null
), ordered as (
    select unit, id, starts, max(cleaned) over earlier as cleaned_before, lag(id) over by_start as before
    from spans
    window by_start as (partition by unit order by starts, id),
           earlier as (partition by unit order by starts, id rows between unbounded preceding and 1 preceding)
)
select format('claim %%s freed its units, but nothing proves the cleanup of allocation %%s (%%s)', id, owner_id, state)
from freed where proven_at is null
union all
select format('claim %%s began on unit %%s at %%s, before the cleanup of an earlier claim (such as %%s), proven at %%s',
              id, unit, starts, before, cleaned_before)
from ordered where starts < cleaned_before
"""
RELEASED_UNPROVEN = """
select a.id from allocations a
where a.state = 'released' and a.active_at is not null
  and not coalesce(a.release_result @> '{"released": true, "wiped": true, "leases_released": true}', false)
  and not exists (select from audit u where u.subject = 'allocations/' || a.id
                  and u.action = 'allocation.force_cleanup' and u.principal_kind = 'admin')
"""
LIVE_BUT_FREE = """
select a.id, a.state, c.id from allocations a join claims c on c.id = a.claim_id
where a.state not in ('released', 'failed') and (c.closed_at is not null or not c.occupied)
  and not (a.state = 'requested' and a.waits_for = 'units' and c.occupied_from is null)
"""


def check_proven_cleanup(connection: Connection, _: Bounds) -> Verdict:
    """No claim gave up its units without proof, and none began on units before the one before it was cleaned up."""
    verdict = Verdict("P6", "a unit is reused only after its cleanup is proven")
    verdict.count(connection, "select count(*) from claims where occupied_from is not null")
    verdict.scan(connection, UNPROVEN, "{0}")
    verdict.scan(connection, RELEASED_UNPROVEN, "allocation {0} is released without a release result that proves it")
    verdict.scan(connection, LIVE_BUT_FREE, "allocation {0} is {1}, but its claim {2} gave its units away")
    return verdict
