"""SQL that finds allocations on which a sweeper must act: bounded, earliest first, without locks.

They are past or near their end, past the deadline of a wait, or wait for a workflow that may be lost. Whatever is found is
locked and evaluated again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.waits import Wait
from orchestrator.database.transactions import Reading, Transaction

# One that waits for units until its end fails by the deadline of that wait, so that its tenant learns why it never ran.
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
_NOTE_NOTIFIED = """
update allocations set ending_told_at = clock_timestamp()
where id = :id and ending_told_at is null and state in ('requested', 'provisioning', 'active')
  and ends_at > clock_timestamp() and ends_at <= clock_timestamp() + make_interval(secs => :notice_seconds)
returning ending_told_at
"""
# OFFSET keeps the planner from joining a few claims with all allocations that ever existed.
_OVERDUE = """
(select a.id, a.state, a.waits_until as due from allocations a
 where a.waits_until < (select clock_timestamp() - make_interval(secs => :grace_seconds)) order by a.waits_until limit :limit)
union all
(select a.id, a.state, c.waits_until from claims c
 cross join lateral (select id, state from allocations where id = c.owner_id and state = 'failed' offset 0) a
 where c.waits_until < (select clock_timestamp() - make_interval(secs => :grace_seconds)) order by c.waits_until limit :limit)
order by due limit :limit
"""
# The wait of an allocation is on its row until it is final, and on its claim after that. The event that starts a workflow
# carries the claim's fence as long as no task was issued under a newer one. The first of the two comparisons of deadlines
# lets the planner use the indexes on deadlines; OFFSET keeps it from joining claims with all allocations that ever existed.
_WAITING = """
with waiting as (
    (select a.id, a.waits_for, a.waits_until from allocations a
     where a.state in ('requested', 'provisioning', 'active', 'releasing') and a.waits_for <> 'units'
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
select w.id as allocation_id, w.waits_until, a.state, w.waits_for, a.row_version, f.fence, t.id as task_id, t.notify,
       coalesce(t.finished_at < clock_timestamp() - make_interval(secs => :patience_seconds), false) as task_ended,
       e.event_type, e.event_id, e.version as event_version,
       coalesce((select p.version from consumer_positions p where p.consumer = :consumer), 0) as position
from waiting w join allocations a on a.id = w.id join claims c on c.id = a.claim_id
cross join lateral (select coalesce(c.inherited_fence, c.fence) as fence) f
left join lateral (
    select id, notify, finished_at from node_tasks where allocation_id = a.id order by fence desc limit 1
) t on true
left join lateral (
    (select l.event_type, l.event_id, l.version from log l
     where a.state <> 'active' and l.subject = 'allocations/' || a.id
       and l.event_type in ('provisioning.requested', 'provisioning.releasing.requested')
       and (l.payload ->> 'fence')::bigint = f.fence
     order by l.version desc limit 1)
    union all
    (select l.event_type, l.event_id, l.version from log l
     where a.state = 'active' and l.subject = 'allocations/' || a.id and l.event_type = 'allocation.verb_requested'
       and (l.payload ->> 'fence')::bigint = f.fence
     order by l.version desc limit 1)
) e on true
order by w.waits_until, w.id
"""


@dataclass(frozen=True, slots=True)
class Overdue:
    """An allocation whose wait has passed its deadline."""

    allocation_id: UUID
    state: AllocationState


@dataclass(frozen=True, slots=True)
class Waiter:
    """An allocation that waits for a workflow or a task, with the ids that its workflow can have.

    `notify`: the workflow that issued the newest task; `task_ended`: that task ended longer ago than the patience. The
    event is the one with the claim's newest fence, if there is one; `position`: the events up to it were handed to Temporal.
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


async def find_ended(reading: Reading, limit: int) -> list[UUID]:
    """Allocations past their `ends_at` that are not released."""
    return list((await reading.execute(_ENDED, {"limit": limit})).scalars())


async def find_ending(reading: Reading, notice_seconds: float, limit: int) -> list[UUID]:
    """Allocations whose end is within `notice_seconds`, without a notification yet."""
    return list((await reading.execute(_ENDING, {"notice_seconds": notice_seconds, "limit": limit})).scalars())


async def note_notified_if_ending(tx: Transaction, allocation_id: UUID, notice_seconds: float) -> bool:
    """Record that the tenant is notified now: once, before the end, by the clock after the caller's locks."""
    values = {"id": allocation_id, "notice_seconds": notice_seconds}
    return (await tx.execute(_NOTE_NOTIFIED, values)).first() is not None


async def find_overdue(reading: Reading, grace_seconds: float, limit: int) -> list[Overdue]:
    """Allocations whose wait is past its deadline by more than `grace_seconds`."""
    rows = await reading.execute(_OVERDUE, {"grace_seconds": grace_seconds, "limit": limit})
    return [Overdue(row.id, AllocationState(row.state)) for row in rows]


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
