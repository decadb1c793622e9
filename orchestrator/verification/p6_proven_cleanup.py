"""P6: a unit is reusable only after its cleanup is proven, or an admin stated on the record that nothing is left on it.

Proof is one of: the allocation's release result, or a task's completed under the claim's last fence, with `released`,
`wiped` and `leases_released` all true and no device in its evidence unproven; an audited force-cleanup; or that no task
for the allocation ever reached a node, so nothing could be on it. It must be there before the next claim on the unit
begins.
"""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

# A release result of the allocation by the end of the occupation is proof enough: the units are clean when they are free, and P1
# checks that no two claims occupy them at once. The history of units is judged only on nodes where another claim freed some.
UNPROVEN = """
with freed as (
    select c.id, c.node_id, c.owner_id, c.occupied_until, coalesce(a.state, 'gone') as state,
           a.state is not null and a.active_at is null as never_active,
           case when a.release_result @> '{"released": true, "wiped": true, "leases_released": true}'
                     and not a.release_result @? '$.evidence.devices[*] ? (!(@.proven == true))' then a.released_at end
               as released_at
    from claims c left join allocations a on a.id = c.owner_id
    where c.owner_kind = 'allocation' and c.occupied_from is not null and not c.occupied and not exists (
        -- Its successor occupied the same units from the same instant: nothing was freed.
        select from claims s where s.owner_id = c.owner_id and s.owner_kind = 'allocation' and s.node_id = c.node_id
          and s.units = c.units and s.occupied_from = c.occupied_until and s.id > c.id)
), doubtful as materialized (
    select * from freed where not coalesce(released_at <= occupied_until, false)
), proofs as (
    select owner_id as allocation_id, released_at as at from doubtful
    union all
    select t.allocation_id, t.finished_at from node_tasks t
        join claims c on c.owner_id = t.allocation_id and c.fence = t.fence
    where t.state = 'completed' and t.result @> '{"released": true, "wiped": true, "leases_released": true}'
      and not t.result @? '$.evidence.devices[*] ? (!(@.proven == true))'
      and t.allocation_id in (select owner_id from doubtful)
    union all
    select substr(subject, length('allocations/') + 1)::uuid, at from audit
    where subject like 'allocations/%%' and action = 'allocation.force_cleanup' and principal_kind = 'admin'
), proven as (
    select allocation_id, min(at) as at from proofs group by allocation_id
), judged as materialized (
    select d.*, case when p.at is not null then p.at
                     when d.never_active and not exists (
                         select from node_tasks t where t.allocation_id = d.owner_id and t.dispatched_at is not null)
                         then d.occupied_until
                end as proven_at
    from doubtful d left join proven p on p.allocation_id = d.owner_id
), spans as (
    select id, starts, cleaned, generate_series(lower(part), upper(part) - 1) as unit from (
        select c.id, c.occupied_from as starts, unnest(c.units) as part,
               greatest(coalesce(c.occupied_until, 'infinity'),
                        case when j.id is not null then coalesce(j.proven_at, 'infinity') end) as cleaned
        from claims c left join judged j on j.id = c.id
        where c.occupied_from is not null and c.node_id in (select node_id from judged)
    ) parts
), ordered as (
    select unit, id, starts, max(cleaned) over earlier as cleaned_before, lag(id) over by_start as before
    from spans
    window by_start as (partition by unit order by starts, id),
           earlier as (partition by unit order by starts, id rows between unbounded preceding and 1 preceding)
)
select format('claim %%s freed its units, but nothing proves the cleanup of allocation %%s (%%s)', id, owner_id, state)
from judged where proven_at is null
union all
select format('claim %%s began on unit %%s at %%s, before the cleanup of an earlier claim (such as %%s), proven at %%s',
              id, unit, starts, before, cleaned_before)
from ordered where starts < cleaned_before
"""
RELEASED_UNPROVEN = """
select a.id from allocations a
where a.state = 'released' and a.active_at is not null
  and not coalesce(a.release_result @> '{"released": true, "wiped": true, "leases_released": true}'
                   and not a.release_result @? '$.evidence.devices[*] ? (!(@.proven == true))', false)
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
