"""SQL of the tasks of deploy systems. Every change holds the lock of the node's row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from sqlalchemy import select

from berth.process.json_objects import JsonObject
from node_agent.protocol import TaskBody, TaskType
from node_agent.wire.deploy_enrolment import DeployResultReport
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.nodes.deploy_systems.tables import deploy_tasks
from orchestrator.tasks.signing import TaskSigner
from orchestrator.tasks.states import TaskState
from orchestrator.tasks.store.dispatch import Dispatched
from orchestrator.tasks.store.tasks import NOT_BEFORE_ALLOWANCE_SECONDS

HISTORY_MAX = 20

_INSERT = """
insert into deploy_tasks (node_id, deploy_epoch, type, parameters, claim_id, notify, seconds_max, requested_by, waits_for,
                          waits_since, waits_until)
select :node_id, :deploy_epoch, :type, cast(:parameters as jsonb), :claim_id, :notify, :seconds_max, :by, 'worker', c.now,
       c.now + make_interval(secs => :hello_seconds_max)
from (select clock_timestamp() as now) c
returning id
"""
_RESULT = "select outcome, result from deploy_tasks where id = :id"
_OPEN = "select id from deploy_tasks where node_id = :node_id and ended_at is null"
_FIND_OPEN = """
select t.node_id from deploy_tasks t
left join deploy_systems d on d.node_id = t.node_id and d.deploy_epoch = t.deploy_epoch
left join node_tasks k on k.id = t.task_id
where t.ended_at is null
  and case when t.task_id is null then d.hello_at is not null or d.ended_at is not null or t.waits_until <= clock_timestamp()
           else k.id is null or k.state not in ('queued', 'dispatched') end
order by t.waits_until limit :limit
"""
_READ_OPEN = """
select t.id, t.deploy_epoch, t.type, t.parameters, t.claim_id, t.notify, t.seconds_max, t.task_id, t.waits_until,
       (select r.allocation_id from deploy_runs r
        where r.node_id = t.node_id and r.deploy_task_id = t.id and r.kind = 'wipe') as released,
       d.hello_at is not null and d.ended_at is null and d.not_after > clock_timestamp() as is_started,
       d.ended_at is not null or d.not_after <= clock_timestamp() as is_over,
       k.state as task_state, k.result,
       coalesce(k.failure_code || ': ' || k.failure_detail, 'not_reported: the deploy system did not report in time')
           as task_failure,
       (select p.task_id from deploy_tasks p where p.node_id = t.node_id and p.task_id is not null and p.id <> t.id
        order by p.id desc limit 1) as previous_task,
       clock_timestamp() as clock
from deploy_tasks t left join deploy_systems d on d.node_id = t.node_id and d.deploy_epoch = t.deploy_epoch
left join node_tasks k on k.id = t.task_id
where t.node_id = :node_id and t.ended_at is null
"""
_ISSUE = """
insert into node_tasks (id, node_id, node_epoch, deploy_epoch, type, fence, envelope, notify, not_before, expires_at)
values (:id, :node_id, :node_epoch, :deploy_epoch, :type, :fence, cast(:envelope as jsonb), :notify, :not_before, :expires_at)
"""
_SET_ISSUED = """
update deploy_tasks set task_id = :task_id, issued_at = :clock, waits_for = 'deploy_system', waits_since = :clock,
    waits_until = :expires_at
where id = :id
"""
_DELETE_ENDED = "delete from node_tasks where id = :id and state not in ('queued', 'dispatched')"
# The envelope and the parameters of a deployment hold the tenant's keys and user data; those of a rescue hold its keys.
_END = """
with freed as (
    update node_tasks k set envelope = '{}' from deploy_tasks t
    where t.id = :id and k.id = t.task_id and t.type in ('metal.deploy', 'metal.rescue')
      and k.state not in ('queued', 'dispatched')
)
update deploy_tasks set parameters = parameters - 'config_drive' - 'ssh_public_keys',
    waits_for = null, waits_since = null, waits_until = null, ended_at = clock_timestamp(),
    outcome = :outcome, failure = left(:failure, 500), result = cast(:result as jsonb)
where id = :id
"""
_FORGET = """
delete from deploy_tasks where node_id = :node_id and ended_at is not null and id in (
    select id from deploy_tasks where node_id = :node_id order by id desc offset :history_max)
"""
# The permission is evaluated in the statement: one that was superseded a moment ago gets nothing.
_LEASE = """
with picked as (
    select t.id from node_tasks t
    join deploy_systems d on d.node_id = t.node_id and d.deploy_epoch = t.deploy_epoch
    where t.node_id = :node_id and t.deploy_epoch = :deploy_epoch and t.state in ('queued', 'dispatched')
      and t.not_before <= clock_timestamp() and t.expires_at > clock_timestamp() and t.id <> all (cast(:known as uuid[]))
      and d.serial = :serial and d.ended_at is null and d.not_after > clock_timestamp()
    order by t.queued_at, t.id limit 1
    for update of t
)
update node_tasks t
set state = 'dispatched', dispatched_at = coalesce(t.dispatched_at, clock_timestamp()), dispatch_count = t.dispatch_count + 1
from picked p where t.id = p.id
returning t.id, t.node_id, t.envelope, extract(epoch from t.dispatched_at - t.queued_at) as waited
"""
_FIND_TASK = """
select k.type, k.fence, k.state, t.parameters, k.node_epoch, d.pem as certificate_pem,
       (select r.allocation_id from deploy_runs r
        where r.node_id = k.node_id and r.deploy_task_id = t.id and r.kind = 'wipe') as released
from node_tasks k join deploy_tasks t on t.node_id = k.node_id and t.task_id = k.id
join deploy_systems d on d.node_id = k.node_id and d.deploy_epoch = k.deploy_epoch
where k.id = :id and k.node_id = :node_id and k.deploy_epoch = :deploy_epoch for no key update of k
"""
_FINISH = """
with ended as (
    update node_tasks t set state = :state, finished_at = clock_timestamp(), result = cast(:result as jsonb),
                            failure_code = :code, failure_detail = :detail
    where t.id = :id and t.state in ('queued', 'dispatched')
    returning t.id, t.type, t.fence, t.notify, t.queued_at, t.finished_at
), sent as (
    insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, payload)
    select 'task.finished', e.finished_at, :correlation_id, null, 'tasks/' || e.id,
           jsonb_build_object('task_id', e.id, 'allocation_id', null, 'type', e.type, 'outcome', cast(:state as text),
                              'fence', e.fence, 'notify', e.notify, 'queued_at', e.queued_at)
    from ended e
)
select count(*) from ended
"""


@dataclass(frozen=True, slots=True)
class DeployTask:
    """A task of a deploy system as operators see it. `outcome` is null while it is open; `failure`: why it did not complete."""

    id: UUID
    node_id: UUID
    deploy_epoch: int
    type: str
    requested_at: datetime
    requested_by: str
    issued_at: datetime | None
    waits_for: str | None
    waits_since: datetime | None
    waits_until: datetime | None
    ended_at: datetime | None
    outcome: str | None
    failure: str | None
    result: JsonObject | None


_TASK = select(*(deploy_tasks.c[name] for name in DeployTask.__slots__))


@dataclass(frozen=True, slots=True)
class OpenDeployTask:
    """The open task of a locked node; `clock` was read after the lock. `released`: the allocation that its wipe releases."""

    id: UUID
    deploy_epoch: int
    type: TaskType
    parameters: JsonObject
    claim_id: int | None
    notify: str | None
    seconds_max: int
    task_id: UUID | None
    waits_until: datetime
    released: UUID | None
    is_started: bool
    is_over: bool
    task_state: TaskState | None
    result: JsonObject | None
    task_failure: str
    previous_task: UUID | None
    clock: datetime


@dataclass(frozen=True, slots=True)
class SignedTask:
    """A signed task of a deploy system, locked.

    `certificate_pem`: what was issued to the deploy system; `released`: the allocation that its wipe releases.
    """

    type: TaskType
    fence: int
    state: TaskState
    parameters: JsonObject
    node_epoch: int
    certificate_pem: str
    released: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A task that is requested: its parameters as JSON text, its claim, and as `by` the principal.

    `seconds_max`: how long it may take; `hello_seconds_max`: how long the hello is waited for; `notify`: the workflow that
    waits for its end.
    """

    deploy_epoch: int
    type: TaskType
    parameters: str
    claim_id: int | None
    notify: str | None
    seconds_max: float
    hello_seconds_max: float
    by: str


async def insert_task(tx: Transaction, node_id: UUID, new: NewTask) -> UUID:
    """Open a task of a locked node that has none open; a worker issues it once the deploy system has said hello."""
    given = {**asdict(new), "node_id": node_id, "type": new.type.value}
    made: UUID = (await tx.execute(_INSERT, given)).scalar_one()
    return made


async def read_task(reading: Reading, task: UUID) -> DeployTask:
    """The task."""
    return DeployTask(**(await reading.execute(_TASK.where(deploy_tasks.c.id == task))).one()._mapping)


async def read_result(reading: Reading, task: UUID | None) -> tuple[str | None, JsonObject | None]:
    """Outcome and result of the task; None and None if it does not exist any more."""
    row = (await reading.execute(_RESULT, {"id": task})).first()
    return (None, None) if row is None else (row.outcome, row.result)


async def list_tasks(reading: Reading, node_id: UUID, *, before: UUID | None, limit: int) -> list[DeployTask]:
    """Up to `limit` tasks of the node before this id, the newest first."""
    found = _TASK.where(deploy_tasks.c.node_id == node_id).order_by(deploy_tasks.c.id.desc()).limit(limit)
    if before is not None:
        found = found.where(deploy_tasks.c.id < before)
    return [DeployTask(**row._mapping) for row in await reading.execute(found)]


async def find_open_of(tx: Transaction, node_id: UUID) -> UUID | None:
    """The open task of the node."""
    found: UUID | None = (await tx.execute(_OPEN, {"node_id": node_id})).scalar()
    return found


async def find_open(reading: Reading, limit: int) -> list[UUID]:
    """Nodes with an open task that can be issued or is over."""
    return list((await reading.execute(_FIND_OPEN, {"limit": limit})).scalars())


async def read_open(tx: Transaction, node_id: UUID) -> OpenDeployTask | None:
    """The open task of a locked node."""
    row = (await tx.execute(_READ_OPEN, {"node_id": node_id})).first()
    if row is None:
        return None
    state = None if row.task_state is None else TaskState(row.task_state)
    return OpenDeployTask(**{**row._mapping, "type": TaskType(row.type), "task_state": state})


async def issue(tx: Transaction, signer: TaskSigner, node_id: UUID, node_epoch: int, known: OpenDeployTask) -> None:
    """Sign and queue the task under a new fence, and delete the signed task of the one before it, which has ended."""
    fence: int = (await tx.execute("select nextval('fences')", {})).scalar_one()
    body = TaskBody(
        task_id=uuid4(), type=known.type, node_id=node_id, node_epoch=node_epoch, allocation_id=known.released, fence=fence,
        parameters=known.parameters, not_before=known.clock - timedelta(seconds=NOT_BEFORE_ALLOWANCE_SECONDS),
        expires_at=known.clock + timedelta(seconds=known.seconds_max), key_id=signer.key_id,
    )  # fmt: skip
    await tx.execute(_DELETE_ENDED, {"id": known.previous_task})
    values = {
        "id": body.task_id, "node_id": node_id, "node_epoch": node_epoch, "deploy_epoch": known.deploy_epoch,
        "type": known.type.value, "fence": fence, "envelope": signer.sign(body).model_dump_json(), "notify": known.notify,
        "not_before": body.not_before, "expires_at": body.expires_at,
    }  # fmt: skip
    await tx.execute(_ISSUE, values)
    issued = {"id": known.id, "task_id": body.task_id, "clock": known.clock, "expires_at": body.expires_at}
    await tx.execute(_SET_ISSUED, issued)


async def end(
    tx: Transaction, node_id: UUID, task: UUID, outcome: str, failure: str | None, result: JsonObject | None
) -> None:
    """End the open task; of the ended ones the newest `HISTORY_MAX` are kept."""
    written = None if result is None else json.dumps(result)
    await tx.execute(_END, {"id": task, "outcome": outcome, "failure": failure, "result": written})
    await tx.execute(_FORGET, {"node_id": node_id, "history_max": HISTORY_MAX})


async def lease_task(
    tx: Transaction, node_id: UUID, deploy_epoch: int, serial: str, known: Sequence[UUID]
) -> list[Dispatched]:
    """The live task of the deploy system, in the same envelope each time, unless it is in `known`."""
    values = {"node_id": node_id, "deploy_epoch": deploy_epoch, "serial": serial, "known": list(known)}
    rows = await tx.execute(_LEASE, values)
    return [Dispatched(row.id, row.node_id, row.envelope, float(row.waited)) for row in rows]


async def lock_signed(tx: Transaction, node_id: UUID, deploy_epoch: int, task_id: UUID) -> SignedTask | None:
    """The signed task, locked; None if it is not this deploy system's."""
    values = {"id": task_id, "node_id": node_id, "deploy_epoch": deploy_epoch}
    row = (await tx.execute(_FIND_TASK, values)).first()
    return (
        None
        if row is None
        else SignedTask(**{**row._mapping, "type": TaskType(row.type), "state": TaskState(row.state)})
    )


async def finish(tx: Transaction, task_id: UUID, report: DeployResultReport, correlation_id: UUID) -> None:
    """Write the outcome of a locked, live task and the event `task.finished`. Evidence of a failure is its result."""
    failure = report.failure
    content = report.result if failure is None else report.evidence
    values = {
        "id": task_id, "state": report.outcome, "result": None if content is None else json.dumps(content),
        "code": None if failure is None else failure.code.value, "detail": None if failure is None else failure.detail,
        "correlation_id": correlation_id,
    }  # fmt: skip
    ended = await tx.execute(_FINISH, values)
    assert ended.scalar_one() == 1, "a task that is locked and live can be finished"
