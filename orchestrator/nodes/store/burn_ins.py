"""SQL of burn-ins. Every change holds the lock of the node's row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from berth.process.json_objects import JsonObject
from node_agent.protocol import TaskType
from node_agent.wire.burn_in import BURN_IN_FEATURE, BurnInParameters
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.nodes.burn_ins.rules import SOURCES, BurnInOutcome, Plan, SlotUse
from orchestrator.nodes.states import NodeState
from orchestrator.tasks.signing import TaskSigner
from orchestrator.tasks.states import TaskState
from orchestrator.tasks.store.node_tasks import issue_node_task


@dataclass(frozen=True, slots=True)
class BurnIn:
    """A burn-in as operators see it. `outcome` is null while it is open; `failure`: why it did not pass."""

    id: UUID
    node_id: UUID
    slots: list[int]
    requested_at: datetime
    requested_by: str
    issued_at: datetime | None
    shared: bool | None
    waits_for: str | None
    waits_since: datetime | None
    waits_until: datetime | None
    ended_at: datetime | None
    outcome: str | None
    failure: str | None
    report: JsonObject | None


@dataclass(frozen=True, slots=True)
class OpenBurnIn:
    """The open burn-in of a locked node, with what is known of node and task; `clock` was read after the lock."""

    id: UUID
    slots: list[int]
    requested_by: str
    task_id: UUID | None
    issued_at: datetime | None
    waits_until: datetime
    state: NodeState
    reachable: bool
    supported: bool
    epoch: int
    agent_version: str | None
    slot_count: int
    topology: JsonObject | None
    previous_task: UUID | None
    task_state: TaskState | None
    result: JsonObject | None
    task_failure: str
    clock: datetime


@dataclass(frozen=True, slots=True)
class Standing:
    """What burn-ins say about the return of a slot. `testing_until`: the slot is under test."""

    testing_until: datetime | None
    passed: UUID | None
    failure: str | None


@dataclass(frozen=True, slots=True)
class Returnable:
    """A slot whose quarantine a passed burn-in may end."""

    slot_index: int
    unit: int


_INSERT = """
insert into node_burn_ins (node_id, slots, requested_by, waits_for, waits_since, waits_until)
select :node_id, :slots, :requested_by, 'worker', c.now, c.now + make_interval(secs => :seconds_max)
from (select clock_timestamp() as now) c
returning id, node_id, slots, requested_at, requested_by, issued_at, shared, waits_for, waits_since, waits_until, ended_at,
          outcome, failure, report
"""
_OPEN = """
select id, node_id, slots, requested_at, requested_by, issued_at, shared, waits_for, waits_since, waits_until, ended_at, outcome,
       failure, report
from node_burn_ins where node_id = :node_id and ended_at is null
"""
_LIST = """
select id, node_id, slots, requested_at, requested_by, issued_at, shared, waits_for, waits_since, waits_until, ended_at, outcome,
       failure, report
from node_burn_ins where node_id = :node_id and (cast(:before as uuid) is null or id < :before) order by id desc limit :limit
"""
# A claim that has begun may have a guest, also before the agent reports it; so has an orphan.
_SLOTS = """
select s.slot_index,
       exists (select from slot_quarantines q where q.unit = s.unit and q.returned_at is null) as quarantined,
       exists (select from claims c where c.node_id = s.node_id and c.closed_at is null and c.owner_kind = 'allocation'
                                      and c.units @> s.unit and (c.occupied or lower(c.during) <= clock_timestamp()))
       or exists (select from node_orphans o where o.node_id = s.node_id and o.state <> 'destroyed'
                                               and s.slot_index = any (o.slots)) as occupied
from slots s where s.node_id = :node_id order by s.slot_index
"""
_AGENT = """
select n.online and n.identity_conflict_at is null as reachable, :feature = any (n.agent_features) as supported,
       n.agent_version
from nodes n where n.id = :node_id
"""
# What waits for a node that is not there waits until its deadline.
_FIND = """
select b.node_id from node_burn_ins b join nodes n on n.id = b.node_id left join node_tasks k on k.id = b.task_id
where b.ended_at is null
  and case when b.task_id is null then n.online or n.state = 'retired' or b.waits_until <= clock_timestamp()
           else k.id is null or k.state not in ('queued', 'dispatched') end
order by b.waits_until limit :limit
"""
_READ = """
select b.id, b.slots, b.requested_by, b.task_id, b.issued_at, b.waits_until, n.state,
       n.online and n.identity_conflict_at is null as reachable, :feature = any (n.agent_features) as supported, n.epoch,
       n.agent_version, n.slot_count, coalesce(t.approved, t.found) as topology,
       (select p.task_id from node_burn_ins p where p.node_id = b.node_id and p.task_id is not null and p.id <> b.id
        order by p.id desc limit 1) as previous_task, k.state as task_state, k.result,
       coalesce(k.failure_code || ': ' || k.failure_detail, 'the node did not report in time') as task_failure,
       clock_timestamp() as clock
from node_burn_ins b join nodes n on n.id = b.node_id left join node_topologies t on t.node_id = b.node_id
left join node_tasks k on k.id = b.task_id
where b.node_id = :node_id and b.ended_at is null
"""
_ISSUE = """
update node_burn_ins set task_id = :task_id, issued_at = :clock, shared = :shared, slots = :slots, waits_for = 'node',
    waits_since = :clock, waits_until = :expires_at
where id = :id
"""
_END = """
update node_burn_ins set waits_for = null, waits_since = null, waits_until = null, ended_at = clock_timestamp(),
    outcome = :outcome, failure = left(:failure, 500), report = cast(:report as jsonb)
where id = :id
"""
_FORGET = """
delete from node_burn_ins where node_id = :node_id and ended_at is not null and id in (
    select id from node_burn_ins where node_id = :node_id order by id desc offset :history_max)
"""
# Memory, disk and processors belong to the whole node: a fault that a later burn-in found voids every pass before it.
_STANDING = """
select (select b.waits_until from node_burn_ins b where b.node_id = :node_id and b.ended_at is null and b.task_id is not null
                                                    and :slot_index = any (b.slots)) as testing_until,
       (select b.id from node_burn_ins b where b.node_id = :node_id and b.outcome = 'passed' and :slot_index = any (b.slots)
                                           and b.issued_at > :since
                                           and not exists (select from node_burn_ins f where f.node_id = b.node_id
                                                           and f.outcome = 'faulty' and f.id > b.id)
        order by b.id desc limit 1) as passed,
       (select b.failure from node_burn_ins b where b.node_id = :node_id and :slot_index = any (b.slots)
                                                and b.issued_at > :since order by b.id desc limit 1) as failure
"""
_RETURNABLE = """
select q.slot_index, q.unit from slot_quarantines q
where q.node_id = :node_id and q.returned_at is null and q.slot_index = any (:slots) and q.source = any (:sources)
  and greatest(q.quarantined_at, q.last_fault_at) < :issued_at
order by q.slot_index
"""


async def read_slots(tx: Transaction, node_id: UUID) -> list[SlotUse]:
    """The slots of a locked node."""
    return [SlotUse(**row._mapping) for row in await tx.execute(_SLOTS, {"node_id": node_id})]


async def read_agent(tx: Transaction, node_id: UUID) -> tuple[bool, bool, str | None]:
    """Whether the node is reachable, whether its agent knows burn-ins, and the agent's version."""
    row = (await tx.execute(_AGENT, {"node_id": node_id, "feature": BURN_IN_FEATURE})).one()
    return row.reachable, row.supported, row.agent_version


async def read_open(tx: Transaction, node_id: UUID) -> BurnIn | None:
    """The open burn-in of the node."""
    row = (await tx.execute(_OPEN, {"node_id": node_id})).first()
    return None if row is None else BurnIn(**row._mapping)


async def insert_request(
    tx: Transaction, node_id: UUID, slots: Sequence[int], *, by: str, seconds_max: float
) -> BurnIn:
    """Open a burn-in of a locked node that has none; a worker issues its task."""
    values = {"node_id": node_id, "slots": list(slots), "requested_by": by, "seconds_max": seconds_max}
    return BurnIn(**(await tx.execute(_INSERT, values)).one()._mapping)


async def find_open(reading: Reading, limit: int) -> list[UUID]:
    """Nodes with an open burn-in whose task can be issued or is over, or whose request has waited too long."""
    return list((await reading.execute(_FIND, {"limit": limit})).scalars())


async def read_open_with_task(tx: Transaction, node_id: UUID) -> OpenBurnIn | None:
    """The open burn-in of a locked node, with its task."""
    row = (await tx.execute(_READ, {"node_id": node_id, "feature": BURN_IN_FEATURE})).first()
    if row is None:
        return None
    found = dict(row._mapping)
    found["state"] = NodeState(found["state"])
    found["task_state"] = None if row.task_state is None else TaskState(row.task_state)
    return OpenBurnIn(**found)


async def issue(
    tx: Transaction, signer: TaskSigner, node_id: UUID, known: OpenBurnIn, planned: Plan, gpus: Sequence[str],
    seconds_max: float,
) -> None:  # fmt: skip
    """Sign and queue the task of a requested burn-in, and delete the task of the one before it."""
    order = BurnInParameters(slots=list(planned.slots), gpus=list(gpus), shared=planned.shared)
    body = await issue_node_task(
        tx, signer, TaskType.BURN_IN, node_id, known.epoch, clock=known.clock, seconds_max=seconds_max,
        previous_task=known.previous_task, parameters=order,
    )  # fmt: skip
    values = {
        "id": known.id, "task_id": body.task_id, "clock": known.clock, "shared": planned.shared, "slots": list(planned.slots),
        "expires_at": body.expires_at,
    }  # fmt: skip
    await tx.execute(_ISSUE, values)


async def end(
    tx: Transaction, node_id: UUID, burn_in_id: UUID, outcome: BurnInOutcome, failure: str | None, report: bytes | None,
    history_max: int,
) -> None:  # fmt: skip
    """End the open burn-in; of the ended ones the newest `history_max` are kept."""
    values = {
        "id": burn_in_id, "outcome": outcome.value, "failure": failure, "report": None if report is None else report.decode(),
    }  # fmt: skip
    await tx.execute(_END, values)
    await tx.execute(_FORGET, {"node_id": node_id, "history_max": history_max})


async def read_standing(tx: Transaction, node_id: UUID, slot_index: int, since: datetime) -> Standing:
    """What burn-ins issued after this time say about a slot of a locked node."""
    values = {"node_id": node_id, "slot_index": slot_index, "since": since}
    return Standing(**(await tx.execute(_STANDING, values)).one()._mapping)


async def find_returnable(
    tx: Transaction, node_id: UUID, slots: Sequence[int], issued_at: datetime
) -> list[Returnable]:
    """Those of the slots whose open quarantine, by a probe or fault report, and last fault precede this time."""
    values = {"node_id": node_id, "slots": list(slots), "sources": list(SOURCES), "issued_at": issued_at}
    return [Returnable(**row._mapping) for row in await tx.execute(_RETURNABLE, values)]


async def list_burn_ins(reading: Reading, node_id: UUID, *, before: UUID | None, limit: int) -> list[BurnIn]:
    """Up to `limit` burn-ins of the node before this id, the newest first."""
    rows = await reading.execute(_LIST, {"node_id": node_id, "before": before, "limit": limit})
    return [BurnIn(**row._mapping) for row in rows]
