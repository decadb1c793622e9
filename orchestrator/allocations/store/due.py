"""Allocations that end by themselves: who is to be warned, and whose time is over. Looked at without locks, earliest first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.waits import Wait
from orchestrator.database.transactions import Reading, Transaction

# One that waits for its units until its end is failed by its own deadline, so that its tenant learns why it never ran.
_ENDED = """
select id from allocations
where ends_at is not null and state in ('requested', 'provisioning', 'active')
  and ends_at <= (select clock_timestamp()) and waits_for <> 'units'
order by ends_at limit :limit
"""
_ENDING = """
select id from allocations
where ends_at is not null and state in ('requested', 'provisioning', 'active') and ending_told_at is null
  and ends_at > (select clock_timestamp())
  and ends_at <= (select clock_timestamp() + make_interval(secs => :notice_seconds))
order by ends_at limit :limit
"""
_NOTE_TOLD = """
update allocations set ending_told_at = clock_timestamp()
where id = :id and ending_told_at is null and state in ('requested', 'provisioning', 'active')
  and ends_at > clock_timestamp() and ends_at <= clock_timestamp() + make_interval(secs => :notice_seconds)
returning ending_told_at
"""


async def find_ended(reading: Reading, limit: int) -> list[UUID]:
    """Allocations that nobody has released although their time is over."""
    return list((await reading.execute(_ENDED, {"limit": limit})).scalars())


async def find_ending(reading: Reading, notice_seconds: float, limit: int) -> list[UUID]:
    """Allocations whose end is nearer than `notice_seconds`, and whose tenant has not been told."""
    return list((await reading.execute(_ENDING, {"notice_seconds": notice_seconds, "limit": limit})).scalars())


async def note_told_if_ending(tx: Transaction, allocation_id: UUID, notice_seconds: float) -> bool:
    """Whether its tenant is to be told now, judged by the clock after the caller's locks: once, and only before its end."""
    values = {"id": allocation_id, "notice_seconds": notice_seconds}
    return (await tx.execute(_NOTE_TOLD, values)).first() is not None


_EXPIRED = """
select id from node_tasks
where state in ('queued', 'dispatched') and expires_at < (select clock_timestamp() - make_interval(secs => :grace_seconds))
order by expires_at limit :limit
"""
_FIND_TASK = "select allocation_id from node_tasks where id = :id"
# As a node's report does it: task, timeline and event in one statement, under the locks.
_EXPIRE = """
with at as materialized (select clock_timestamp() as now),
ended as (
    update node_tasks t set state = 'expired', finished_at = at.now
    from at where t.id = :id and t.state in ('queued', 'dispatched') and t.expires_at <= at.now
    returning t.id, t.allocation_id, t.type, t.fence, t.notify, t.queued_at
), told as (
    insert into allocation_timeline (allocation_id, at, kind, code, detail, actor_kind, actor_id, fence)
    select e.allocation_id, at.now, 'note', 'task_expired', e.type, 'worker', 'rescuer', e.fence
    from ended e, at where e.allocation_id is not null
), sent as (
    insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, payload)
    select 'task.finished', at.now, :correlation_id, null, 'tasks/' || e.id,
           jsonb_build_object('task_id', e.id, 'allocation_id', e.allocation_id, 'type', e.type, 'outcome', 'expired',
                              'fence', e.fence, 'notify', e.notify, 'queued_at', e.queued_at)
    from ended e, at
)
select count(*) from ended
"""
# An allocation's wait stands on its row while it is not final, on its claim after that. The event that a workflow was
# to start from carries the claim's fence as long as no task was issued under a newer one. The comparison that seems to be
# said twice leads to the indexes of deadlines; OFFSET keeps claims from being joined with all allocations there ever were.
_WAITING = """
with waiting as (
    (select a.id, a.waits_for, a.waits_until from allocations a
     where a.state in ('requested', 'provisioning', 'releasing') and a.waits_for <> 'units'
       and a.waits_until >= :after_deadline and (a.waits_until, a.id) > (:after_deadline, cast(:after_id as uuid))
       and a.waits_since < clock_timestamp() - make_interval(secs => :patience_seconds)
     order by a.waits_until, a.id limit :limit)
    union all
    (select c.owner_id, c.waits_for, c.waits_until from claims c
     cross join lateral (select from allocations where id = c.owner_id and claim_id = c.id and state = 'failed' offset 0) a
     where c.waits_until >= :after_deadline and (c.waits_until, c.owner_id) > (:after_deadline, cast(:after_id as uuid))
       and c.waits_since < clock_timestamp() - make_interval(secs => :patience_seconds)
     order by c.waits_until, c.owner_id limit :limit)
    order by 3, 1 limit :limit
)
select w.id as allocation_id, w.waits_until, a.state, w.waits_for, a.row_version, c.fence, t.id as task_id, t.notify,
       coalesce(t.finished_at < clock_timestamp() - make_interval(secs => :patience_seconds), false) as task_ended,
       e.event_type, e.event_id, e.version as event_version,
       coalesce((select p.version from consumer_positions p where p.consumer = :consumer), 0) as position
from waiting w join allocations a on a.id = w.id join claims c on c.id = a.claim_id
left join lateral (
    select id, notify, finished_at from node_tasks where allocation_id = a.id order by fence desc limit 1
) t on true
left join lateral (
    select l.event_type, l.event_id, l.version from log l
    where l.subject = 'allocations/' || a.id
      and l.event_type in ('provisioning.requested', 'provisioning.releasing.requested')
      and (l.payload ->> 'fence')::bigint = c.fence
    order by l.version desc limit 1
) e on true
order by w.waits_until, w.id
"""
_HAND_OVER = "update node_tasks set notify = :notify where id = :id"


@dataclass(frozen=True, slots=True)
class Waiter:
    """An allocation that waits for a workflow or for a task that one issued, and by which names that one would go.

    `notify`: the workflow that issued the newest task, which has ended a while ago if `task_ended`. The event is the one
    that bears the claim's newest fence, if there is one; `position`: every event of the log up to it has been handed to
    Temporal.
    """

    allocation_id: UUID
    waits_until: datetime
    state: AllocationState
    waits_for: Wait
    row_version: int
    fence: int
    task_id: UUID | None
    notify: str | None
    task_ended: bool
    event_type: str | None
    event_id: UUID | None
    event_version: int | None
    position: int


async def find_expired_tasks(reading: Reading, grace_seconds: float, limit: int) -> list[UUID]:
    """Live tasks whose time ended more than `grace_seconds` ago, the earliest first."""
    values = {"grace_seconds": grace_seconds, "limit": limit}
    return list((await reading.execute(_EXPIRED, values)).scalars())


async def find_allocation_of_task(reading: Reading, task_id: UUID) -> UUID | None:
    """The allocation that a task is for, None if it is for none or unknown."""
    found: UUID | None = (await reading.execute(_FIND_TASK, {"id": task_id})).scalar()
    return found


async def expire_if_overdue(tx: Transaction, task_id: UUID, correlation_id: UUID) -> bool:
    """End a live task whose time is up, by the clock after the locks; whether it was one."""
    ended: int = (await tx.execute(_EXPIRE, {"id": task_id, "correlation_id": correlation_id})).scalar_one()
    return ended == 1


async def find_waiters(
    reading: Reading, *, consumer: str, patience_seconds: float, after: tuple[datetime, UUID], limit: int
) -> list[Waiter]:
    """Up to `limit` waits with a deadline, older than `patience_seconds`, in the order of (deadline, id) from `after`."""
    values = {"consumer": consumer, "patience_seconds": patience_seconds, "limit": limit}
    place = {"after_deadline": after[0], "after_id": after[1]}
    rows = await reading.execute(_WAITING, {**values, **place})
    return [
        Waiter(**{**row._mapping, "state": AllocationState(row.state), "waits_for": Wait(row.waits_for)})
        for row in rows
    ]


async def hand_over(tx: Transaction, task_id: UUID, notify: str) -> None:
    """Whoever is told of the task's end is this workflow from now on."""
    await tx.execute(_HAND_OVER, {"id": task_id, "notify": notify})
