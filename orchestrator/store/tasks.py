"""Signed tasks for nodes: issued, superseded, finished (DESIGN §9). Handing them out is elsewhere.

A task's row, with its id and envelope, is committed before the node can see it. At most one task of an allocation is
live; the database refuses a second (`one_live_task`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from node_agent.protocol import (
    ImageParameters,
    ProvisionParameters,
    ReleaseParameters,
    ResultReport,
    TaskBody,
    TaskType,
)
from orchestrator.domain.events import EventType
from orchestrator.domain.states import Shape, TaskState
from orchestrator.store.allocations import Subject
from orchestrator.store.database import Reading, Transaction
from orchestrator.trust.signing import TaskSigner

NOT_BEFORE_ALLOWANCE_SECONDS = 30.0
"""How far the clock of the process that answers nodes may be behind the database's."""

PROVISION_TYPES = {Shape.GPU_SLICE: TaskType.VM_PROVISION, Shape.BAREMETAL: TaskType.PROVISION_USER}
RELEASE_TYPES = {Shape.GPU_SLICE: TaskType.VM_RELEASE, Shape.BAREMETAL: TaskType.DEPROVISION_USER}


@dataclass(frozen=True, slots=True)
class Instructions:
    """What a task for an allocation is made from."""

    node_epoch: int
    faults: dict[str, str]
    slots: list[int]
    name: str | None
    gpu_model: str
    user_data: str | None
    ssh_public_keys: list[str]
    image: str
    image_url: str
    image_sha256: str


@dataclass(frozen=True, slots=True)
class Issued:
    """A task that is now queued for its node."""

    id: UUID
    expires_at: datetime


_READ_INSTRUCTIONS = """
select n.epoch as node_epoch, n.faults,
       array(select unit - n.unit_base from unnest(c.units) part, generate_series(lower(part), upper(part) - 1) unit
             order by unit) as slots,
       a.name, a.gpu_model, a.user_data, a.ssh_public_keys, i.name as image, i.url as image_url, i.sha256 as image_sha256
from allocations a join nodes n on n.id = a.node_id join claims c on c.id = a.claim_id join images i on i.name = a.image
where a.id = :id
"""
_INSERT = """
insert into node_tasks (id, node_id, node_epoch, type, allocation_id, fence, attempt, envelope, notify, not_before, expires_at)
values (:id, :node_id, :node_epoch, :type, :allocation_id, :fence, :attempt, cast(:envelope as jsonb), :notify,
        :not_before, :expires_at)
"""
_SUPERSEDE = """
update node_tasks set state = 'superseded', finished_at = clock_timestamp()
where allocation_id = :allocation_id and state in ('queued', 'dispatched')
"""
_EXPIRE = """
update node_tasks set state = 'expired', finished_at = clock_timestamp()
where id = :id and state in ('queued', 'dispatched')
"""


async def read_instructions(reading: Reading, allocation_id: UUID) -> Instructions:
    """Node, slots, image and keys of an allocation."""
    row = (await reading.execute(_READ_INSTRUCTIONS, {"id": allocation_id})).one()
    return Instructions(**row._mapping)


def provision_parameters(subject: Subject, told: Instructions) -> ProvisionParameters:
    """What the node needs to make the allocation usable. The host's name is the allocation's id (RFC 1123)."""
    return ProvisionParameters(
        slots=told.slots,
        gpu_model=told.gpu_model,
        image=ImageParameters(name=told.image, url=told.image_url, sha256=told.image_sha256),
        ssh_public_keys=told.ssh_public_keys,
        user_data=told.user_data,
        hostname=f"berth-{subject.id}",
        faults=told.faults,
    )


def release_parameters(told: Instructions) -> ReleaseParameters:
    """What the node needs to take the allocation down."""
    return ReleaseParameters(slots=told.slots, faults=told.faults)


async def issue_task(
    tx: Transaction,
    signer: TaskSigner,
    subject: Subject,
    task_type: TaskType,
    parameters: ProvisionParameters | ReleaseParameters,
    *,
    node_epoch: int,
    fence: int,
    attempt: int,
    notify: str,
    valid_seconds: float,
) -> Issued:
    """Sign and queue a task. `notify` names the workflow to wake when it ends; older live tasks are superseded first."""
    await tx.execute(_SUPERSEDE, {"allocation_id": subject.id})
    body = TaskBody(
        task_id=uuid4(),
        type=task_type,
        node_id=subject.node_id,
        node_epoch=node_epoch,
        allocation_id=subject.id,
        fence=fence,
        parameters=parameters.model_dump(mode="json"),
        not_before=subject.clock - timedelta(seconds=NOT_BEFORE_ALLOWANCE_SECONDS),
        expires_at=subject.clock + timedelta(seconds=valid_seconds),
        key_id=signer.key_id,
    )
    await tx.execute(
        _INSERT,
        {
            "id": body.task_id,
            "node_id": body.node_id,
            "node_epoch": body.node_epoch,
            "type": body.type.value,
            "allocation_id": subject.id,
            "fence": fence,
            "attempt": attempt,
            "envelope": signer.sign(body).model_dump_json(),
            "notify": notify,
            "not_before": body.not_before,
            "expires_at": body.expires_at,
        },
    )
    return Issued(body.task_id, body.expires_at)


async def supersede_live_tasks(tx: Transaction, allocation_id: UUID) -> None:
    """Make the allocation's running task worthless; its late result will change nothing (P8)."""
    await tx.execute(_SUPERSEDE, {"allocation_id": allocation_id})


async def expire_task(tx: Transaction, task_id: UUID) -> None:
    """End a task whose time is up."""
    await tx.execute(_EXPIRE, {"id": task_id})


@dataclass(frozen=True, slots=True)
class TaskOfNode:
    """What is to be known of a task before its locks are taken."""

    allocation_id: UUID | None
    type: TaskType


_FIND = "select allocation_id, type from node_tasks where id = :id and node_id = :node_id"


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


# Task, timeline and event in one statement. The event names the workflow to wake, so its consumer asks nobody.
_FINISH = """
with at as materialized (select clock_timestamp() as now),
ended as (
    update node_tasks t set state = :state, finished_at = at.now, result = cast(:result as jsonb),
                            failure_code = :code, failure_detail = :detail
    from at
    where t.id = :id and t.state in ('queued', 'dispatched')
    returning t.id, t.allocation_id, t.type, t.fence, t.notify, t.node_id
), told as (
    insert into allocation_timeline (allocation_id, at, kind, code, detail, actor_kind, actor_id, fence)
    select e.allocation_id, at.now, 'note', coalesce(:code, 'task_completed'), coalesce(:detail, e.type),
           'node', e.node_id::text, e.fence
    from ended e, at where e.allocation_id is not null
), sent as (
    insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, payload)
    select :event_type, at.now, :correlation_id, null, 'tasks/' || e.id,
           jsonb_build_object('task_id', e.id, 'allocation_id', e.allocation_id, 'type', e.type,
                              'outcome', cast(:state as text), 'fence', e.fence, 'notify', e.notify)
    from ended e, at
)
select count(*) from ended
"""


async def finish_task(tx: Transaction, task_id: UUID, report: ResultReport, correlation_id: UUID) -> None:
    """Write a live task's outcome, the timeline's note and the event `task.finished`. The task is locked and live."""
    failure = report.failure
    ended = await tx.execute(
        _FINISH,
        {
            "id": task_id,
            "state": TaskState.COMPLETED.value if report.outcome == "completed" else TaskState.FAILED.value,
            "result": None if report.result is None else _json(report.result),
            "code": None if failure is None else failure.code.value,
            "detail": None if failure is None else failure.detail,
            "event_type": EventType.TASK_FINISHED.value,
            "correlation_id": correlation_id,
        },
    )
    assert ended.scalar_one() == 1, "a task that is locked and live can be finished"


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value)
