"""SQL of the tasks of maintenance windows on their nodes. Every change holds the locks of the node's row and of the window."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import BaseModel

from berth.process.json_objects import JsonObject
from node_agent.protocol import TaskType
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.maintenance.states import TaskKind, WindowState, WindowTaskState
from orchestrator.nodes.states import NodeState
from orchestrator.tasks.signing import TaskSigner
from orchestrator.tasks.states import TaskState
from orchestrator.tasks.store.node_tasks import issue_node_task

TYPES = {
    TaskKind.HEALTH_PROBE: TaskType.HEALTH_PROBE,
    TaskKind.BURN_IN: TaskType.BURN_IN,
    TaskKind.GPU_RESET: TaskType.GPU_RESET,
    TaskKind.PLUGIN: TaskType.MAINTENANCE_PLUGIN,
}


@dataclass(frozen=True, slots=True)
class OpenTask:
    """The task of a locked window on a locked node. `clock` was read after the locks.

    `obstacle`: why it cannot begin now, as maintenance_task_obstacle.sql says. `shared`: allocations are on other slots of the
    node.
    """

    kind: TaskKind
    plugin: str | None
    seconds_max: int
    state: WindowTaskState
    window_state: WindowState
    ends_at: datetime
    slots: list[int]
    obstacle: Literal["offline", "units", "busy"] | None
    shared: bool
    node_state: NodeState
    epoch: int
    features: list[str]
    agent_version: str | None
    slot_count: int
    gpu_model: str
    found: JsonObject | None
    approved: JsonObject | None
    accepted: dict[str, int]
    previous_task: UUID | None
    task_state: TaskState | None
    task_dispatched: bool
    result: JsonObject | None
    failure_code: str | None
    failure_detail: str | None
    clock: datetime


# `clock_timestamp()` of a subquery is read once, so that the index ends the scan.
_FIND = """
select m.window_id, m.node_id from maintenance_tasks m join maintenance_windows w on w.id = m.window_id
join nodes n on n.id = m.node_id left join node_tasks k on k.id = m.task_id
where m.ended_at is null and m.kind <> 'firmware' and m.begins_at <= (select clock_timestamp())
  and case when m.state = 'running' then k.id is null or k.state not in ('queued', 'dispatched')
           when w.state = 'scheduled' then false
           when w.state <> 'active' or n.state = 'retired' then true
           when m.waits_until < clock_timestamp() + make_interval(secs => m.seconds_max) then true
           else n.online and maintenance_task_obstacle(m.window_id, m.node_id) is null end
order by m.begins_at, m.window_id, m.node_id limit :limit
"""
_LOCK_WINDOW = "select state from maintenance_windows where id = :window_id for no key update"
_READ = """
select m.kind, m.plugin, m.seconds_max, m.state, w.state as window_state, w.ends_at,
       (select array_agg(s.slot_index order by s.slot_index) from slots s where s.node_id = m.node_id and u.units @> s.unit)
           as slots,
       maintenance_task_obstacle(m.window_id, m.node_id) as obstacle,
       exists (select from claims c where c.node_id = m.node_id and c.closed_at is null and c.owner_kind = 'allocation'
                                      and (c.occupied or lower(c.during) <= clock_timestamp())) as shared,
       n.state as node_state, n.epoch, n.agent_features as features, n.agent_version, n.slot_count,
       n.gpu_model, t.found, t.approved, coalesce(h.accepted, '{}') as accepted,
       (select p.task_id from maintenance_tasks p where p.node_id = m.node_id and p.task_id is not null
        order by p.begun_at desc limit 1) as previous_task,
       k.state as task_state, coalesce(k.dispatched_at is not null, true) as task_dispatched, k.result, k.failure_code,
       k.failure_detail, clock_timestamp() as clock
from maintenance_tasks m join maintenance_windows w on w.id = m.window_id join nodes n on n.id = m.node_id
join maintenance_units u on u.window_id = m.window_id and u.node_id = m.node_id
left join node_topologies t on t.node_id = m.node_id left join node_health h on h.node_id = m.node_id
left join node_tasks k on k.id = m.task_id
where m.window_id = :window_id and m.node_id = :node_id and m.ended_at is null
"""
_BEGIN = """
update maintenance_tasks set state = 'running', task_id = :task_id, begun_at = :clock, waits_for = 'node', waits_since = :clock,
    waits_until = :expires_at
where window_id = :window_id and node_id = :node_id and state = 'waiting'
"""
_OCCUPY = """
update claims set occupied = true, occupied_from = :clock
where owner_id = :window_id and owner_kind = 'maintenance' and node_id = :node_id and closed_at is null and booked
  and during @> cast(:clock as timestamptz)
"""
_END = """
update maintenance_tasks set state = :state, failure = :failure, evidence = :evidence, ended_at = clock_timestamp(),
    waits_for = null, waits_since = null, waits_until = null
where window_id = :window_id and node_id = :node_id and ended_at is null
"""
_VACATE = """
update claims set occupied = false, occupied_until = clock_timestamp()
where owner_id = :window_id and owner_kind = 'maintenance' and node_id = :node_id and occupied
"""
_BUMP = "select bump_row_versions(:node_id, null)"
_UPDATING = """
select window_id from maintenance_tasks where node_id = :node_id and state = 'running' and kind = 'firmware'
"""
_RUNNING_ON = "select window_id from maintenance_tasks where node_id = :node_id and state = 'running'"


async def find_open(reading: Reading, limit: int) -> list[tuple[UUID, UUID]]:
    """Window and node of tasks that can begin, are over, or do not run any more, those of the earliest windows first."""
    return [(row.window_id, row.node_id) for row in await reading.execute(_FIND, {"limit": limit})]


async def read_running(tx: Transaction, node_id: UUID) -> UUID | None:
    """The window whose task runs on this locked node."""
    found: UUID | None = (await tx.execute(_RUNNING_ON, {"node_id": node_id})).scalar()
    return found


async def read_updating(tx: Transaction, node_id: UUID) -> UUID | None:
    """The window that updates firmware of this locked node now."""
    found: UUID | None = (await tx.execute(_UPDATING, {"node_id": node_id})).scalar()
    return found


async def lock_task(tx: Transaction, window_id: UUID, node_id: UUID) -> OpenTask | None:
    """Lock the window, after its node, and read the task; None if it has ended."""
    await tx.execute(_LOCK_WINDOW, {"window_id": window_id})
    row = (await tx.execute(_READ, {"window_id": window_id, "node_id": node_id})).first()
    if row is None:
        return None
    return OpenTask(
        **{
            **row._mapping, "kind": TaskKind(row.kind), "state": WindowTaskState(row.state),
            "window_state": WindowState(row.window_state), "node_state": NodeState(row.node_state),
            "task_state": None if row.task_state is None else TaskState(row.task_state),
        }
    )  # fmt: skip


async def begin(
    tx: Transaction, signer: TaskSigner, window_id: UUID, node_id: UUID, known: OpenTask, parameters: BaseModel | None
) -> UUID:
    """Sign and queue the task, and occupy the window's units of the node until its result is known; return the task's id."""
    body = await issue_node_task(
        tx, signer, TYPES[known.kind], node_id, known.epoch, clock=known.clock, seconds_max=known.seconds_max,
        previous_task=known.previous_task, parameters=parameters,
    )  # fmt: skip
    await note_begun(tx, window_id, node_id, known.clock, body.task_id, body.expires_at)
    return body.task_id


async def note_begun(
    tx: Transaction, window_id: UUID, node_id: UUID, clock: datetime, task_id: UUID, expires_at: datetime
) -> None:
    """The locked, waiting task runs as this one; the window's units of the node are occupied until its result is known."""
    values = {"window_id": window_id, "node_id": node_id, "clock": clock}
    begun = await tx.execute(_BEGIN, {**values, "task_id": task_id, "expires_at": expires_at})
    assert begun.rowcount == 1, "a locked, waiting task stays waiting"
    await tx.execute(_OCCUPY, values)
    await tx.execute(_BUMP, {"node_id": node_id})


async def end(
    tx: Transaction, window_id: UUID, node_id: UUID, state: WindowTaskState, failure: str | None, evidence: str | None
) -> None:
    """The locked task has ended; the window occupies no unit of the node any more."""
    values = {"window_id": window_id, "node_id": node_id}
    await tx.execute(_END, {**values, "state": state.value, "failure": failure, "evidence": evidence})
    if (await tx.execute(_VACATE, values)).rowcount:
        await tx.execute(_BUMP, {"node_id": node_id})
