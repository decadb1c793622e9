"""SQL for tasks past their deadline: found without locks, ended under the locks of their allocation."""

from __future__ import annotations

from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction

_EXPIRED = """
select id from node_tasks
where state in ('queued', 'dispatched') and expires_at < (select clock_timestamp() - make_interval(secs => :grace_seconds))
order by expires_at limit :limit
"""
_FIND_TASK = "select allocation_id from node_tasks where id = :id"
# Task, timeline and event change in one statement under the locks, as when a node reports.
_EXPIRE = """
with at as materialized (select clock_timestamp() as now),
ended as (
    update node_tasks t set state = 'expired', finished_at = at.now
    from at where t.id = :id and t.state in ('queued', 'dispatched') and t.expires_at <= at.now
    returning t.id, t.allocation_id, t.type, t.fence, t.notify, t.queued_at
), noted as (
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


async def find_expired_tasks(reading: Reading, grace_seconds: float, limit: int) -> list[UUID]:
    """Live tasks whose deadline passed more than `grace_seconds` ago, the earliest first."""
    values = {"grace_seconds": grace_seconds, "limit": limit}
    return list((await reading.execute(_EXPIRED, values)).scalars())


async def find_allocation_of_task(reading: Reading, task_id: UUID) -> UUID | None:
    """The allocation that the task is for; None if there is none, or no such task."""
    found: UUID | None = (await reading.execute(_FIND_TASK, {"id": task_id})).scalar()
    return found


async def expire_if_overdue(tx: Transaction, task_id: UUID, correlation_id: UUID) -> bool:
    """Expire a live task past its deadline, by the clock after the caller's locks; return whether it expired."""
    ended: int = (await tx.execute(_EXPIRE, {"id": task_id, "correlation_id": correlation_id})).scalar_one()
    return ended == 1
