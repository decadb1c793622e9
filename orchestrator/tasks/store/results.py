"""What a node reports of a task, written under the locks of node, allocation and claim (DESIGN §9)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from uuid import UUID

from node_agent.protocol import ResultReport, TaskType
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.log.events import EventType
from orchestrator.tasks.states import TaskState


@dataclass(frozen=True, slots=True)
class TaskOfNode:
    """What is to be known of a task before its locks are taken."""

    allocation_id: UUID | None
    type: TaskType


_FIND = "select allocation_id, type from node_tasks where id = :id and node_id = :node_id and deploy_epoch is null"


async def find_task_of_node(reading: Reading, task_id: UUID, node_id: UUID) -> TaskOfNode | None:
    """The task, if it is that node's; None otherwise (P10)."""
    row = (await reading.execute(_FIND, {"id": task_id, "node_id": node_id})).first()
    return None if row is None else TaskOfNode(row.allocation_id, TaskType(row.type))


@dataclass(frozen=True, slots=True)
class TaskStanding:
    """Whether a task still counts, read under the locks."""

    state: TaskState
    fence: int
    node_epoch: int


_READ_STANDING = "select state, fence, node_epoch from node_tasks where id = :id for no key update"


async def lock_task(tx: Transaction, task_id: UUID) -> TaskStanding:
    """Lock the task's row, after those of its node, allocation and claim."""
    row = (await tx.execute(_READ_STANDING, {"id": task_id})).one()
    return TaskStanding(TaskState(row.state), row.fence, row.node_epoch)


# Task, timeline and event in one statement. The event names the workflow to wake, so its consumer needs no query.
_FINISH = """
with at as materialized (select clock_timestamp() as now),
ended as (
    update node_tasks t set state = :state, finished_at = at.now, result = cast(:result as jsonb),
                            failure_code = :code, failure_detail = :detail
    from at
    where t.id = :id and t.state in ('queued', 'dispatched')
    returning t.id, t.allocation_id, t.type, t.fence, t.notify, t.node_id, t.queued_at
), emitted as (
    insert into allocation_timeline (allocation_id, at, kind, code, detail, actor_kind, actor_id, fence)
    select e.allocation_id, at.now, 'note', coalesce(:code, 'task_completed'), coalesce(:detail, e.type),
           'node', e.node_id::text, e.fence
    from ended e, at where e.allocation_id is not null
), sent as (
    insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, payload)
    select :event_type, at.now, :correlation_id, null, 'tasks/' || e.id,
           jsonb_build_object('task_id', e.id, 'allocation_id', e.allocation_id, 'type', e.type,
                              'outcome', cast(:state as text), 'fence', e.fence, 'notify', e.notify,
                              'queued_at', e.queued_at)
    from ended e, at
)
select count(*) from ended
"""


async def finish_task(tx: Transaction, task_id: UUID, report: ResultReport, correlation_id: UUID) -> None:
    """Write a live task's outcome, the timeline's note and the event `task.finished`. The task is locked and live."""
    failure = report.failure
    state = TaskState.COMPLETED if report.outcome == "completed" else TaskState.FAILED
    result = None if report.result is None else json.dumps(report.result)
    code, detail = (None, None) if failure is None else (failure.code.value, failure.detail)
    await finish_with(tx, task_id, state, result, code, detail, correlation_id)


async def finish_with(
    tx: Transaction, task_id: UUID, state: TaskState, result: str | None, code: str | None, detail: str | None,
    correlation_id: UUID,
) -> None:  # fmt: skip
    """As `finish_task`, with a result as JSON text and any code of a failure."""
    values = {
        "id": task_id, "state": state.value, "result": result, "code": code, "detail": detail,
        "event_type": EventType.TASK_FINISHED.value, "correlation_id": correlation_id,
    }  # fmt: skip
    ended = await tx.execute(_FINISH, values)
    assert ended.scalar_one() == 1, "a task that is locked and live can be finished"
