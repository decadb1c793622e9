"""Health of nodes' hardware. Every change holds the lock of the node's row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import select

from berth.process.json_objects import JsonObject
from node_agent.protocol import TaskType
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.nodes.probes.rules import PROBE_SECONDS_MAX, Fault
from orchestrator.nodes.tables import node_health
from orchestrator.tasks.signing import TaskSigner
from orchestrator.tasks.states import TaskState
from orchestrator.tasks.store.node_tasks import issue_node_task


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """The health of a node's hardware as operators see it. `failure`: why the last probe failed."""

    node_id: UUID
    report: JsonObject | None
    reported_at: datetime | None
    faults: list[JsonObject]
    accepted: dict[str, int]
    failure: str | None
    next_at: datetime
    waits_for: str | None
    waits_since: datetime | None
    waits_until: datetime | None


@dataclass(frozen=True, slots=True)
class StoredReport:
    """A report of a node's history."""

    id: UUID
    node_id: UUID
    reported_at: datetime
    report: JsonObject
    faults: list[JsonObject]


@dataclass(frozen=True, slots=True)
class DueProbe:
    """A locked node whose probe is due; `clock` was read after the lock."""

    epoch: int
    previous_task: UUID | None
    clock: datetime


@dataclass(frozen=True, slots=True)
class EndedProbe:
    """The task of a probe that is over, and what is known of its node. `state` is None if the task is gone."""

    node_name: str
    gpu_model: str
    slot_count: int
    issued_at: datetime
    topology: JsonObject | None
    state: TaskState | None
    result: JsonObject | None
    failure: str | None


# Both statements have one condition: the second is evaluated under the lock. A probe follows the first discovery, which names
# the GPUs of the slots.
_FIND_DUE = """
select n.id from nodes n left join node_health h on h.node_id = n.id
where n.state not in ('registered', 'retired') and n.online and n.identity_conflict_at is null
  and n.driver is distinct from 'redfish'
  and exists (select from node_topologies t where t.node_id = n.id and (t.waits_for is null or t.found is not null))
  and (h.node_id is null or h.waits_for is null and (h.next_at <= clock_timestamp() or h.epoch <> n.epoch))
order by h.next_at nulls first, n.id limit :limit
"""
_READ_DUE = """
select n.epoch, h.task_id as previous_task, clock_timestamp() as clock
from nodes n left join node_health h on h.node_id = n.id
where n.id = :id and n.state not in ('registered', 'retired') and n.online and n.identity_conflict_at is null
  and n.driver is distinct from 'redfish'
  and exists (select from node_topologies t where t.node_id = n.id and (t.waits_for is null or t.found is not null))
  and (h.node_id is null or h.waits_for is null and (h.next_at <= clock_timestamp() or h.epoch <> n.epoch))
"""
_OPEN = """
insert into node_health (node_id, task_id, epoch, waits_for, waits_since, waits_until, next_at)
values (:node_id, :task_id, :epoch, 'node', :clock, :expires_at, :next_at)
on conflict (node_id) do update set task_id = excluded.task_id, epoch = excluded.epoch, waits_for = excluded.waits_for,
    waits_since = excluded.waits_since, waits_until = excluded.waits_until, next_at = excluded.next_at
"""
_FIND_ENDED = """
select h.node_id from node_health h left join node_tasks k on k.id = h.task_id
where h.waits_for is not null and (k.id is null or k.state not in ('queued', 'dispatched')) order by h.waits_until limit :limit
"""
_READ_ENDED = """
select n.name, n.gpu_model, n.slot_count, h.waits_since, coalesce(t.approved, t.found) as topology, k.state, k.result,
       coalesce(k.failure_code || ': ' || k.failure_detail, 'the node did not report in time') as failure
from node_health h join nodes n on n.id = h.node_id left join node_topologies t on t.node_id = h.node_id
left join node_tasks k on k.id = h.task_id
where h.node_id = :id and h.waits_for is not null and (k.id is null or k.state not in ('queued', 'dispatched'))
"""
_FAIL = """
update node_health set waits_for = null, waits_since = null, waits_until = null, failure = left(:failure, 500),
    next_at = least(next_at, clock_timestamp() + make_interval(secs => :retry_seconds))
where node_id = :id
"""
_REPORT = """
with current as (
    update node_health set waits_for = null, waits_since = null, waits_until = null, failure = null,
        report = cast(:report as jsonb), reported_at = clock_timestamp(), faults = cast(:faults as jsonb),
        accepted = cast(:accepted as jsonb)
    where node_id = :id returning node_id, reported_at, report, faults
)
insert into node_health_reports (node_id, reported_at, report, faults)
select node_id, reported_at, report, faults from current
"""
_FORGET = """
delete from node_health_reports where node_id = :id and id in (
    select id from node_health_reports where node_id = :id order by id desc offset :history_max)
"""
# A report counts against a slot only if it was ordered after the slot's last return, and begins no second quarantine.
_SOUND = """
select s.slot_index, s.unit from slots s join nodes n on n.id = s.node_id
where s.node_id = :id and n.state <> 'retired' and s.slot_index = any (:slots) and not exists (
    select from slot_quarantines q where q.unit = s.unit and (q.returned_at is null or q.returned_at >= :issued_at))
order by s.slot_index
"""
_ACCEPT = """
update node_health set next_at = clock_timestamp(), accepted = accepted || coalesce((
    select jsonb_object_agg((f ->> 'cause') || ':' || (f ->> 'subject'), f -> 'count') from jsonb_array_elements(faults) f
    where exists (select from unnest(cast(:slots as integer[])) slot where f -> 'slots' @> to_jsonb(slot))
      and jsonb_typeof(f -> 'count') = 'number'), '{}')
where node_id = :id
"""
_READ = select(*(node_health.c[name] for name in NodeHealth.__slots__))
_LIST = """
select id, node_id, reported_at, report, faults from node_health_reports
where node_id = :node_id and (cast(:before as uuid) is null or id < :before) order by id desc limit :limit
"""
_COUNT = """
select count(*) filter (where h.node_id is null or h.report is null and h.failure is null) as unprobed,
       count(*) filter (where h.faults <> '[]') as faulty, count(*) filter (where h.failure is not null) as failed
from nodes n left join node_health h on h.node_id = n.id where n.state not in ('registered', 'retired')
"""


async def find_due_probes(reading: Reading, limit: int) -> list[UUID]:
    """Nodes whose probe is due: never probed, enrolled again, released from an allocation, or an interval old."""
    return list((await reading.execute(_FIND_DUE, {"limit": limit})).scalars())


async def read_due_probe(tx: Transaction, node_id: UUID) -> DueProbe | None:
    """The locked node, if its probe is still due and none is open."""
    row = (await tx.execute(_READ_DUE, {"id": node_id})).first()
    return None if row is None else DueProbe(**row._mapping)


async def issue_probe(tx: Transaction, signer: TaskSigner, node_id: UUID, due: DueProbe, interval: float) -> UUID:
    """Sign and queue one probe, and delete the task of the last one. Returns the task's id."""
    body = await issue_node_task(
        tx, signer, TaskType.HEALTH_PROBE, node_id, due.epoch, clock=due.clock, seconds_max=PROBE_SECONDS_MAX,
        previous_task=due.previous_task,
    )  # fmt: skip
    opened = {
        "node_id": node_id, "task_id": body.task_id, "epoch": due.epoch, "clock": due.clock,
        "expires_at": body.expires_at, "next_at": due.clock + timedelta(seconds=interval),
    }  # fmt: skip
    await tx.execute(_OPEN, opened)
    return body.task_id


async def find_ended_probes(reading: Reading, limit: int) -> list[UUID]:
    """Nodes with an open probe whose task is over."""
    return list((await reading.execute(_FIND_ENDED, {"limit": limit})).scalars())


async def read_ended_probe(tx: Transaction, node_id: UUID) -> EndedProbe | None:
    """The open probe of a locked node whose task is over; None if there is none."""
    row = (await tx.execute(_READ_ENDED, {"id": node_id})).first()
    if row is None:
        return None
    state = None if row.state is None else TaskState(row.state)
    return EndedProbe(
        row.name, row.gpu_model, row.slot_count, row.waits_since, row.topology, state, row.result, row.failure
    )


async def record_failure(tx: Transaction, node_id: UUID, failure: str, retry_seconds: float) -> None:
    """The open probe failed; the next one is due after a pause. What was reported before stays."""
    await tx.execute(_FAIL, {"id": node_id, "failure": failure, "retry_seconds": retry_seconds})


async def record_report(
    tx: Transaction,
    node_id: UUID,
    report: bytes,
    faults: Sequence[Fault],
    accepted: Mapping[str, int],
    history_max: int,
) -> None:
    """The open probe reported this; it is added to the history, which keeps the newest `history_max` reports."""
    values = {
        "id": node_id, "report": report.decode(), "faults": json.dumps([asdict(fault) for fault in faults]),
        "accepted": json.dumps(accepted),
    }  # fmt: skip
    await tx.execute(_REPORT, values)
    await tx.execute(_FORGET, {"id": node_id, "history_max": history_max})


async def find_sound_slots(
    tx: Transaction, node_id: UUID, slots: Sequence[int], issued_at: datetime
) -> list[tuple[int, int]]:
    """Index and unit of those of the slots that a report ordered at this time may take out of service."""
    rows = await tx.execute(_SOUND, {"id": node_id, "slots": list(slots), "issued_at": issued_at})
    return [(row.slot_index, row.unit) for row in rows]


async def accept_counts(tx: Transaction, node_id: UUID, slots: Sequence[int]) -> None:
    """The slots return: their counters are no fault any more as far as they have come, and the next probe is due."""
    await tx.execute(_ACCEPT, {"id": node_id, "slots": list(slots)})


async def read_health(reading: Reading, node_id: UUID) -> NodeHealth | None:
    """The health of the node; None if no probe was issued yet."""
    row = (await reading.execute(_READ.where(node_health.c.node_id == node_id))).first()
    return None if row is None else NodeHealth(**row._mapping)


async def list_reports(reading: Reading, node_id: UUID, *, before: UUID | None, limit: int) -> list[StoredReport]:
    """Up to `limit` reports of the node before this id, the newest first."""
    rows = await reading.execute(_LIST, {"node_id": node_id, "before": before, "limit": limit})
    return [StoredReport(**row._mapping) for row in rows]


async def count_health(reading: Reading) -> dict[str, int]:
    """How many nodes in service are unprobed, faulty, or failed their last probe."""
    return dict((await reading.execute(_COUNT)).one()._mapping)
