"""P7: a holder that lost its claim changes nothing. Results count only under the newest fence.

Fences are drawn from one sequence, under the locks that also order the story, so the timeline itself shows which fence was
the newest at any moment: its transitions and notes, and the tasks as they were issued. What nodes wrote is left out:
a late report is noted with the old fence that it came with.
"""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

GONE_BACK = """
with ordered as (
    select id, subject, fence, lag(fence) over (partition by subject order by queued_at, fence) as before
    from (select id, fence, queued_at, coalesce(allocation_id, orphan_id) as subject from node_tasks) issued
    where subject is not null
)
select id, subject, fence, before from ordered where fence <= before
"""
# A fence is drawn at the earliest instant at which the story or a task has it.
OLD_RESULT = """
with ended as (
    select allocation_id, fence, finished_at from node_tasks
    where allocation_id is not null and state in ('completed', 'failed') and finished_at is not null
), later as (
    select e.*, l.at as superseded_at from ended e join allocation_timeline l
        on l.allocation_id = e.allocation_id and l.fence > e.fence and l.at < e.finished_at and l.actor_kind <> 'node'
    union all
    select e.*, t.queued_at from ended e join node_tasks t
        on t.allocation_id = e.allocation_id and t.fence > e.fence and t.queued_at < e.finished_at
)
select allocation_id, fence, max(finished_at), min(superseded_at) from later group by allocation_id, fence
"""
# Tasks may have been forgotten together; then the story alone remains.
MOVED_BY_ANOTHER = """
with unexplained as materialized (
    select l.allocation_id, l.to_state, l.fence from allocation_timeline l
    where l.kind = 'transition' and l.actor_kind = 'worker' and l.to_state in ('active', 'released') and not exists (
        select from node_tasks t
        where t.allocation_id = l.allocation_id and t.fence = l.fence and t.state = 'completed' and t.finished_at <= l.at
          and (l.to_state = 'active') = (t.type in ('slice.vm_provision', 'allocation.provision_user'))
          and (l.to_state = 'active' or t.result @> '{"released": true, "wiped": true, "leases_released": true}'))
)
select * from unexplained u where exists (select from node_tasks t where t.allocation_id = u.allocation_id)
"""
LIVE_WITH_OLD = """
select t.id, t.allocation_id, t.fence, c.fence from node_tasks t join allocations a on a.id = t.allocation_id
    join claims c on c.id = a.claim_id
where t.state in ('queued', 'dispatched') and (t.fence <> coalesce(c.inherited_fence, c.fence) or c.closed_at is not null)
"""
# What a claim inherits is the older fence of a closed claim of the same allocation. The end of its right draws a fence.
INHERITED_FROM_ANOTHER = """
select c.id, c.inherited_fence, c.owner_id from claims c
where c.inherited_fence is not null and (not c.booked and c.closed_at is null or c.inherited_fence >= c.fence or not exists (
    select from claims p where p.owner_id = c.owner_id and p.owner_kind = c.owner_kind and p.fence = c.inherited_fence
      and p.closed_at <= lower(c.during)))
"""
SET_BACK = """
with holding as materialized (
    select a.id, a.claim_id, c.fence from allocations a join claims c on c.id = a.claim_id
)
select h.claim_id, h.fence, h.id, max(drawn.fence) from (
    select allocation_id, fence from allocation_timeline where actor_kind <> 'node'
    union all
    select allocation_id, fence from node_tasks
) drawn join holding h on h.id = drawn.allocation_id and drawn.fence > h.fence
group by h.claim_id, h.fence, h.id
"""
OF_ANOTHER_NODE = """
select t.id, t.node_id, a.id, a.node_id from node_tasks t join allocations a on a.id = t.allocation_id
where t.node_id <> a.node_id
"""
SHARED = "select fence, count(*) from claims group by fence having count(*) > 1"
DRAWN_AGAIN = """
with known as (select max(fence) as fence from (select fence from claims union all select fence from node_tasks) f)
select s.last_value, k.fence from fences s, known k where k.fence > s.last_value
"""


def check_newest_fence(connection: Connection, _: Bounds) -> Verdict:
    """Fences of an allocation's tasks only grow, no result counted after a newer fence was drawn, and none can return."""
    verdict = Verdict("P7", "no task had an effect under an old fence")
    verdict.count(connection, "select count(*) from node_tasks")
    verdict.scan(connection, GONE_BACK, "task {0} of {1} has the fence {2}, the one before it {3}")
    verdict.scan(
        connection,
        OLD_RESULT,
        "a task of allocation {0} with the fence {1} took effect at {2}, after a newer one at {3}",
    )
    verdict.scan(connection, MOVED_BY_ANOTHER, "allocation {0} became {1} by no task's result under its fence {2}")
    verdict.scan(
        connection,
        LIVE_WITH_OLD,
        "task {0} of allocation {1} is unfinished with the fence {2}; the claim is at {3} or closed",
    )
    verdict.scan(
        connection,
        INHERITED_FROM_ANOTHER,
        "claim {0} accepts tasks with the fence {1}, which no earlier claim of {2} had, or its right has ended",
    )
    verdict.scan(connection, SET_BACK, "claim {0} is at the fence {1}, although {3} was drawn for allocation {2}")
    verdict.scan(connection, OF_ANOTHER_NODE, "task {0} is node {1}'s; its allocation {2} is on node {3}")
    verdict.scan(connection, SHARED, "the fence {0} belongs to {1} claims")
    verdict.scan(connection, DRAWN_AGAIN, "the sequence of fences is at {0}, although {1} was drawn")
    return verdict
