"""Topologies of nodes. Every change holds the lock of the node's row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import select

from berth.process.json_objects import JsonObject
from node_agent.protocol import TaskType
from node_agent.wire.topology import Topology
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.nodes.store.slot_service import keep_slots
from orchestrator.nodes.tables import node_topologies
from orchestrator.nodes.topology.rules import DISCOVERY_SECONDS_MAX, Difference, Profile, drifted_slots
from orchestrator.tasks.signing import TaskSigner
from orchestrator.tasks.states import TaskState
from orchestrator.tasks.store.node_tasks import issue_node_task
from orchestrator.tenants.principals import Actor


@dataclass(frozen=True, slots=True)
class NodeTopology:
    """A node's topology as operators see it. `failure`: why the last discovery failed."""

    node_id: UUID
    found: JsonObject | None
    found_digest: str | None
    found_at: datetime | None
    approved: JsonObject | None
    approved_digest: str | None
    approved_at: datetime | None
    approved_by: str | None
    differences: list[JsonObject]
    drifted_slots: list[int]
    drifted_since: datetime | None
    failure: str | None
    next_at: datetime
    waits_for: str | None
    waits_since: datetime | None
    waits_until: datetime | None
    slot_processors: int | None
    slot_memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class DueNode:
    """A locked node whose discovery is due; `clock` was read after the lock."""

    epoch: int
    agent_run: UUID | None
    previous_task: UUID | None
    clock: datetime


@dataclass(frozen=True, slots=True)
class EndedDiscovery:
    """The task of a discovery that is over, and what its node was declared as. `state` is None if the task is gone."""

    node_name: str
    profile: Profile
    state: TaskState | None
    result: JsonObject | None
    failure: str | None


# Both statements have one condition: the second is evaluated under the lock.
_FIND_DUE = """
select n.id from nodes n left join node_topologies t on t.node_id = n.id
where n.state not in ('registered', 'retired') and n.online and n.identity_conflict_at is null
  and n.driver is distinct from 'redfish'
  and (t.node_id is null
       or t.waits_for is null and (t.next_at <= clock_timestamp() or t.epoch <> n.epoch
                                   or t.agent_run is distinct from n.agent_run))
order by t.next_at nulls first, n.id limit :limit
"""
_READ_DUE = """
select n.epoch, n.agent_run, t.task_id as previous_task, clock_timestamp() as clock
from nodes n left join node_topologies t on t.node_id = n.id
where n.id = :id and n.state not in ('registered', 'retired') and n.online and n.identity_conflict_at is null
  and n.driver is distinct from 'redfish'
  and (t.node_id is null
       or t.waits_for is null and (t.next_at <= clock_timestamp() or t.epoch <> n.epoch
                                   or t.agent_run is distinct from n.agent_run))
"""
_OPEN = """
insert into node_topologies (node_id, task_id, epoch, agent_run, waits_for, waits_since, waits_until, next_at)
values (:node_id, :task_id, :epoch, :agent_run, 'node', :clock, :expires_at, :next_at)
on conflict (node_id) do update set task_id = excluded.task_id, epoch = excluded.epoch, agent_run = excluded.agent_run,
    waits_for = excluded.waits_for, waits_since = excluded.waits_since, waits_until = excluded.waits_until,
    next_at = excluded.next_at
"""
_FIND_ENDED = """
select t.node_id from node_topologies t left join node_tasks k on k.id = t.task_id
where t.waits_for is not null and (k.id is null or k.state not in ('queued', 'dispatched')) order by t.waits_until limit :limit
"""
_READ_ENDED = """
select n.name, n.gpu_model, n.slot_count, n.half_slots, k.state, k.result,
       coalesce(k.failure_code || ': ' || k.failure_detail, 'the node did not report in time') as failure
from node_topologies t join nodes n on n.id = t.node_id left join node_tasks k on k.id = t.task_id
where t.node_id = :id and t.waits_for is not null and (k.id is null or k.state not in ('queued', 'dispatched'))
"""
_FAIL = """
update node_topologies set waits_for = null, waits_since = null, waits_until = null, failure = left(:failure, 500),
    next_at = least(next_at, clock_timestamp() + make_interval(secs => :retry_seconds))
where node_id = :id
"""
_FIND = """
update node_topologies set waits_for = null, waits_since = null, waits_until = null, failure = null,
    found = cast(:found as jsonb), found_digest = :digest, found_at = clock_timestamp()
where node_id = :id
"""
_INSPECT = """
insert into node_topologies as t (node_id, task_id, epoch, next_at, found, found_digest, found_at)
values (:id, :task_id, :epoch, clock_timestamp(), cast(:found as jsonb), :digest, clock_timestamp())
on conflict (node_id) do update set task_id = excluded.task_id, epoch = excluded.epoch, waits_for = null, waits_since = null,
    waits_until = null, failure = null, found = excluded.found, found_digest = excluded.found_digest, found_at = excluded.found_at
"""
_APPROVE = """
update node_topologies set approved = found, approved_digest = found_digest, approved_at = clock_timestamp(),
    approved_by = :approved_by
where node_id = :id
"""
_SET_ROOM = """
update node_topologies set slot_processors = :processors, slot_memory_bytes = :memory_bytes where node_id = :node_id
"""
_DIFFER = """
update node_topologies set differences = cast(:differences as jsonb), drifted_slots = cast(:slots as smallint[]),
    drifted_since = case when :slots = '{}'::smallint[] then null else coalesce(drifted_since, clock_timestamp()) end
where node_id = :id
"""
_READ = select(*(node_topologies.c[name] for name in NodeTopology.__slots__))
_COUNT = """
select count(*) filter (where t.node_id is null or t.approved is null and t.failure is null) as unapproved,
       count(*) filter (where t.drifted_slots <> '{}') as drifted, count(*) filter (where t.failure is not null) as failed
from nodes n left join node_topologies t on t.node_id = n.id where n.state not in ('registered', 'retired')
"""


async def find_due_nodes(reading: Reading, limit: int) -> list[UUID]:
    """Nodes whose discovery is due: never discovered, enrolled or started again, or a day old. The longest due first."""
    return list((await reading.execute(_FIND_DUE, {"limit": limit})).scalars())


async def read_due(tx: Transaction, node_id: UUID) -> DueNode | None:
    """The locked node, if its discovery is still due and none is open."""
    row = (await tx.execute(_READ_DUE, {"id": node_id})).first()
    return None if row is None else DueNode(**row._mapping)


async def issue_discovery(tx: Transaction, signer: TaskSigner, node_id: UUID, due: DueNode, interval: float) -> UUID:
    """Sign and queue one discovery, and delete the task of the last one. Returns the task's id."""
    body = await issue_node_task(
        tx, signer, TaskType.TOPOLOGY_DISCOVER, node_id, due.epoch, clock=due.clock, seconds_max=DISCOVERY_SECONDS_MAX,
        previous_task=due.previous_task,
    )  # fmt: skip
    opened = {
        "node_id": node_id, "task_id": body.task_id, "epoch": due.epoch, "agent_run": due.agent_run, "clock": due.clock,
        "expires_at": body.expires_at, "next_at": due.clock + timedelta(seconds=interval),
    }  # fmt: skip
    await tx.execute(_OPEN, opened)
    return body.task_id


async def find_ended(reading: Reading, limit: int) -> list[UUID]:
    """Nodes with an open discovery whose task is over."""
    return list((await reading.execute(_FIND_ENDED, {"limit": limit})).scalars())


async def read_ended(tx: Transaction, node_id: UUID) -> EndedDiscovery | None:
    """The open discovery of a locked node whose task is over; None if there is none."""
    row = (await tx.execute(_READ_ENDED, {"id": node_id})).first()
    if row is None:
        return None
    state = None if row.state is None else TaskState(row.state)
    profile = Profile(row.gpu_model, row.slot_count, row.half_slots)
    return EndedDiscovery(row.name, profile, state, row.result, row.failure)


async def record_failure(tx: Transaction, node_id: UUID, failure: str, retry_seconds: float) -> None:
    """The open discovery failed; the next one is due after a pause. What was found before stays."""
    await tx.execute(_FAIL, {"id": node_id, "failure": failure, "retry_seconds": retry_seconds})


async def record_found(tx: Transaction, node_id: UUID, topology: Topology) -> None:
    """The open discovery found this."""
    values = {"id": node_id, "found": topology.canonical().decode(), "digest": topology.digest()}
    await tx.execute(_FIND, values)


async def record_inspected(tx: Transaction, node_id: UUID, task_id: UUID, epoch: int, topology: Topology) -> None:
    """The task of a deploy system found this on a node without an agent, which no discovery is issued to."""
    values = {
        "id": node_id, "task_id": task_id, "epoch": epoch, "found": topology.canonical().decode(),
        "digest": topology.digest(),
    }  # fmt: skip
    await tx.execute(_INSPECT, values)


async def approve_found(tx: Transaction, node_id: UUID, actor: Actor) -> None:
    """What was found last is approved; every slot that differed serves again."""
    await tx.execute(_APPROVE, {"id": node_id, "approved_by": f"{actor.kind.value}:{actor.id}"})
    await record_differences(tx, node_id, [])


async def record_room(tx: Transaction, node_id: UUID, processors: int | None, memory_bytes: int | None) -> None:
    """This is the least that a slot has by the approved topology; None: not known."""
    await tx.execute(_SET_ROOM, {"node_id": node_id, "processors": processors, "memory_bytes": memory_bytes})


async def record_differences(tx: Transaction, node_id: UUID, found: Sequence[Difference]) -> None:
    """These are the differences from now on; the slots of them are out of service, and only those."""
    written = json.dumps([asdict(difference) for difference in found])
    await tx.execute(_DIFFER, {"id": node_id, "differences": written, "slots": drifted_slots(found)})
    await keep_slots(tx, node_id)


async def read_topology(reading: Reading, node_id: UUID) -> NodeTopology | None:
    """The node's topology; None if no discovery was issued yet."""
    row = (await reading.execute(_READ.where(node_topologies.c.node_id == node_id))).first()
    return None if row is None else NodeTopology(**row._mapping)


async def count_topologies(reading: Reading) -> dict[str, int]:
    """How many nodes in service are unapproved, drifted, or failed their last discovery."""
    return dict((await reading.execute(_COUNT)).one()._mapping)
