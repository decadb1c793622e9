"""SQL of resets of GPUs. Every change holds the lock of the node's row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from berth.process.json_objects import JsonObject
from node_agent.protocol import TaskType
from node_agent.wire.gpu_reset import GPU_RESET_FEATURE, GpuResetParameters
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.nodes.gpu_resets.rules import RESET_SECONDS_MAX, GpuResetOutcome, Group, SlotUse
from orchestrator.nodes.hardware.rules import Happened
from orchestrator.nodes.states import NodeState
from orchestrator.tasks.signing import TaskSigner
from orchestrator.tasks.states import TaskState
from orchestrator.tasks.store.node_tasks import issue_node_task


@dataclass(frozen=True, slots=True)
class GpuReset:
    """A reset as operators see it. `outcome` is null while it is open; `failure`: why it is not proven."""

    id: UUID
    node_id: UUID
    slots: list[int]
    gpus: list[str]
    requested_at: datetime
    requested_by: str
    issued_at: datetime | None
    waits_for: str | None
    waits_since: datetime | None
    waits_until: datetime | None
    ended_at: datetime | None
    outcome: str | None
    failure: str | None
    report: JsonObject | None


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What decides about a reset on a locked node; `clock` was read after the lock."""

    state: NodeState
    reachable: bool
    supported: bool
    epoch: int
    agent_version: str | None
    slot_count: int
    found: JsonObject | None
    approved: JsonObject | None
    clock: datetime


@dataclass(frozen=True, slots=True)
class OpenGpuReset:
    """The open reset of a locked node, with its task. `task_dispatched`: the node may have read it."""

    id: UUID
    slots: list[int]
    gpus: list[str]
    task_id: UUID | None
    waits_until: datetime
    previous_task: UUID | None
    task_state: TaskState | None
    task_dispatched: bool
    task_refused: bool
    result: JsonObject | None
    task_failure: str


_INSERT = """
insert into node_gpu_resets (node_id, slots, gpus, requested_by, waits_for, waits_since, waits_until)
values (:node_id, :slots, :gpus, :requested_by, 'worker', clock_timestamp(),
        clock_timestamp() + make_interval(secs => :seconds_max))
returning id, node_id, slots, gpus, requested_at, requested_by, issued_at, waits_for, waits_since, waits_until, ended_at, outcome,
          failure, report
"""
_OPEN = """
select id, node_id, slots, gpus, requested_at, requested_by, issued_at, waits_for, waits_since, waits_until, ended_at, outcome,
       failure, report
from node_gpu_resets where node_id = :node_id and ended_at is null
"""
_LIST = """
select id, node_id, slots, gpus, requested_at, requested_by, issued_at, waits_for, waits_since, waits_until, ended_at, outcome,
       failure, report
from node_gpu_resets where node_id = :node_id and (cast(:before as uuid) is null or id < :before) order by id desc limit :limit
"""
# A right that begins while the reset runs counts: its guest would start on the GPU.
_SLOTS = """
select s.slot_index, s.unit,
       exists (select from slot_quarantines q where q.unit = s.unit and q.returned_at is null) as quarantined,
       (select max(w.ends_at) from claims c join maintenance_windows w on w.id = c.owner_id and w.state = 'active'
        where c.node_id = s.node_id and c.closed_at is null and c.owner_kind = 'maintenance' and c.units @> s.unit
          and c.during @> clock_timestamp() and upper(c.during) = w.ends_at) as maintained_until,
       exists (select from claims c
               where c.node_id = s.node_id and c.closed_at is null and c.owner_kind <> 'maintenance' and c.units @> s.unit
                 and (c.occupied or lower(c.during) <= clock_timestamp() + make_interval(secs => :seconds)))
       or exists (select from node_orphans o where o.node_id = s.node_id and o.state <> 'destroyed'
                                               and s.slot_index = any (o.slots)) as occupied
from slots s where s.node_id = :node_id order by s.slot_index
"""
_FACTS = """
select n.state, n.online and n.identity_conflict_at is null as reachable, :feature = any (n.agent_features) as supported,
       n.epoch, n.agent_version, n.slot_count, t.found, t.approved, clock_timestamp() as clock
from nodes n left join node_topologies t on t.node_id = n.id where n.id = :node_id
"""
# What waits for a node that is not there waits until its deadline.
_FIND = """
select r.node_id from node_gpu_resets r join nodes n on n.id = r.node_id left join node_tasks k on k.id = r.task_id
where r.ended_at is null
  and case when r.task_id is null then n.online or n.state = 'retired' or r.waits_until <= clock_timestamp()
           else k.id is null or k.state not in ('queued', 'dispatched') end
order by r.waits_until limit :limit
"""
_READ = """
select r.id, r.slots, r.gpus, r.task_id, r.waits_until,
       (select p.task_id from node_gpu_resets p where p.node_id = r.node_id and p.task_id is not null and p.id <> r.id
        order by p.id desc limit 1) as previous_task, k.state as task_state, k.result,
       coalesce(k.dispatched_at is not null, true) as task_dispatched,
       coalesce(k.failure_code = 'task_refused', false) as task_refused,
       coalesce(k.failure_code || ': ' || k.failure_detail, 'expired: the node did not report in time') as task_failure
from node_gpu_resets r left join node_tasks k on k.id = r.task_id
where r.node_id = :node_id and r.ended_at is null
"""
_ISSUE = """
update node_gpu_resets set task_id = :task_id, issued_at = :clock, waits_for = 'node', waits_since = :clock,
    waits_until = :expires_at
where id = :id
"""
_END = """
update node_gpu_resets set waits_for = null, waits_since = null, waits_until = null, ended_at = clock_timestamp(),
    outcome = :outcome, failure = left(:failure, 500), report = cast(:report as jsonb)
where id = :id
"""
_FORGET = """
delete from node_gpu_resets where node_id = :node_id and ended_at is not null and id in (
    select id from node_gpu_resets where node_id = :node_id order by id desc offset :history_max)
"""
_NOTE = """
insert into hardware_history (serial, kind, happened, node_id, slots, actor, detail, reference, contested)
select p.serial, p.kind, :happened, p.node_id, p.slots, :actor, left(string_agg(d.detail, '; ' order by d.address), 1000), :id,
       p.contested_since is not null
from jsonb_each_text(cast(:details as jsonb)) as d(address, detail)
join hardware_places p on p.node_id = :node_id and p.kind = 'gpu' and p.missing_since is null and d.address = any (p.positions)
group by p.serial, p.node_id order by p.serial
"""


async def read_slots(tx: Transaction, node_id: UUID) -> list[SlotUse]:
    """The slots of a locked node."""
    values = {"node_id": node_id, "seconds": RESET_SECONDS_MAX}
    return [SlotUse(**row._mapping) for row in await tx.execute(_SLOTS, values)]


async def read_facts(tx: Transaction, node_id: UUID) -> NodeFacts:
    """What is known of a locked node."""
    row = (await tx.execute(_FACTS, {"node_id": node_id, "feature": GPU_RESET_FEATURE})).one()
    return NodeFacts(**{**row._mapping, "state": NodeState(row.state)})


async def read_open(reading: Reading, node_id: UUID) -> GpuReset | None:
    """The open reset of the node."""
    row = (await reading.execute(_OPEN, {"node_id": node_id})).first()
    return None if row is None else GpuReset(**row._mapping)


async def insert_request(tx: Transaction, node_id: UUID, group: Group, *, by: str, seconds_max: float) -> GpuReset:
    """Open a reset of a locked node that has none; a worker issues its task."""
    values = {
        "node_id": node_id, "slots": list(group.slots), "gpus": list(group.gpus), "requested_by": by,
        "seconds_max": seconds_max,
    }  # fmt: skip
    return GpuReset(**(await tx.execute(_INSERT, values)).one()._mapping)


async def find_open(reading: Reading, limit: int) -> list[UUID]:
    """Nodes with an open reset whose task can be issued or is over, or whose request has waited too long."""
    return list((await reading.execute(_FIND, {"limit": limit})).scalars())


async def read_open_with_task(tx: Transaction, node_id: UUID) -> OpenGpuReset | None:
    """The open reset of a locked node, with its task."""
    row = (await tx.execute(_READ, {"node_id": node_id})).first()
    if row is None:
        return None
    state = None if row.task_state is None else TaskState(row.task_state)
    return OpenGpuReset(**{**row._mapping, "task_state": state})


async def issue(
    tx: Transaction, signer: TaskSigner, node_id: UUID, known: OpenGpuReset, facts: NodeFacts, serials: Mapping[str, str]
) -> None:  # fmt: skip
    """Sign and queue the task of a requested reset, and delete the task of the one before it.

    `serials`: the expected serial number by address, as far as it is known.
    """
    order = GpuResetParameters(slots=known.slots, gpus=known.gpus, serials=dict(serials))
    body = await issue_node_task(
        tx, signer, TaskType.GPU_RESET, node_id, facts.epoch, clock=facts.clock, seconds_max=RESET_SECONDS_MAX,
        previous_task=known.previous_task, parameters=order,
    )  # fmt: skip
    values = {"id": known.id, "task_id": body.task_id, "clock": facts.clock, "expires_at": body.expires_at}
    await tx.execute(_ISSUE, values)


async def end(
    tx: Transaction, node_id: UUID, reset_id: UUID, outcome: GpuResetOutcome, failure: str | None, report: bytes | None,
    history_max: int,
) -> None:  # fmt: skip
    """End the open reset; of the ended ones the newest `history_max` are kept."""
    values = {
        "id": reset_id, "outcome": outcome.value, "failure": failure, "report": None if report is None else report.decode(),
    }  # fmt: skip
    await tx.execute(_END, values)
    await tx.execute(_FORGET, {"node_id": node_id, "history_max": history_max})


async def note_in_history(tx: Transaction, node_id: UUID, reset_id: UUID, details: Mapping[str, str], by: str) -> None:
    """Write what became of the GPU at each address into the history of its serial number, as far as one is known."""
    values = {
        "node_id": node_id, "id": reset_id, "details": json.dumps(dict(details)), "actor": by,
        "happened": Happened.GPU_RESET.value,
    }  # fmt: skip
    await tx.execute(_NOTE, values)


async def list_gpu_resets(reading: Reading, node_id: UUID, *, before: UUID | None, limit: int) -> list[GpuReset]:
    """Up to `limit` resets of the node before this id, the newest first."""
    rows = await reading.execute(_LIST, {"node_id": node_id, "before": before, "limit": limit})
    return [GpuReset(**row._mapping) for row in rows]
