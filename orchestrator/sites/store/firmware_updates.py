"""SQL of updates of firmware: tasks of maintenance windows that agents of sites perform."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from pydantic import ValidationError

from berth.process.json_objects import JsonObject
from node_agent.wire.firmware import FirmwareOrder, FirmwareProgress, FirmwareResult
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.nodes.store import maintenance_tasks
from orchestrator.sites.rules import REPORT_GRACE_SECONDS, REQUEST_SECONDS_MAX
from orchestrator.sites.states import BmcTaskOutcome

_FIND = """
select m.window_id, m.node_id from maintenance_tasks m join maintenance_windows w on w.id = m.window_id
join nodes n on n.id = m.node_id left join bmc_tasks b on b.id = m.task_id
where m.ended_at is null and m.kind = 'firmware' and m.begins_at <= (select clock_timestamp())
  and case when m.state = 'running' then b.id is null or b.ended_at is not null
           when w.state = 'scheduled' then false
           when w.state <> 'active' or n.state = 'retired' then true
           when m.waits_until < clock_timestamp() + make_interval(secs => m.seconds_max) then true
           else n.online and maintenance_task_obstacle(m.window_id, m.node_id) is null
                and not exists (select from bmc_tasks o where o.node_id = m.node_id and o.ended_at is null)
                and not exists (select from deploy_runs r where r.node_id = m.node_id and r.ended_at is null)
                and not exists (select from deploy_tasks d where d.node_id = m.node_id and d.ended_at is null) end
order by m.begins_at, m.window_id, m.node_id limit :limit
"""
_READ_RUNNING = """
select m.firmware, b.outcome, b.failure, b.progress, b.result
from maintenance_tasks m left join bmc_tasks b on b.id = m.task_id
where m.window_id = :window_id and m.node_id = :node_id and m.state = 'running'
"""
_READ_ORDER = """
select firmware, seconds_max from maintenance_tasks where task_id = :task_id and node_id = :node_id and state = 'running'
"""
_READ_PROGRESS = "select progress from bmc_tasks where id = :id"
_STORE_PROGRESS = "update bmc_tasks set progress = cast(:progress as jsonb) where id = :id and ended_at is null"
_STORE_RESULT = "update bmc_tasks set result = cast(:result as jsonb) where id = :id"


@dataclass(frozen=True, slots=True)
class Ordered:
    """What a window orders of a machine, and how long the agent has for it."""

    order: FirmwareOrder
    seconds_max: float


@dataclass(frozen=True, slots=True)
class EndedUpdate:
    """What is known of an update whose task runs or has ended. `outcome` is None if the task is gone.

    `progress` None: no agent was about to send it. `result` None: there is none that this version can read.
    """

    order: FirmwareOrder
    outcome: BmcTaskOutcome | None
    failure: str | None
    progress: FirmwareProgress | None
    result: FirmwareResult | None


async def find_open(reading: Reading, limit: int) -> list[tuple[UUID, UUID]]:
    """Window and node of updates that can begin, are over, or are not made any more, those of the earliest windows first."""
    return [(row.window_id, row.node_id) for row in await reading.execute(_FIND, {"limit": limit})]


async def note_begun(
    tx: Transaction, window_id: UUID, node_id: UUID, clock: datetime, task_id: UUID, seconds_max: float
) -> None:
    """The locked, waiting task of the window runs as this requested task of the BMC, and is over at the latest when that is."""
    until = clock + timedelta(seconds=REQUEST_SECONDS_MAX + seconds_max + REPORT_GRACE_SECONDS)
    await maintenance_tasks.note_begun(tx, window_id, node_id, clock, task_id, until)


async def read_running(tx: Transaction, window_id: UUID, node_id: UUID) -> EndedUpdate:
    """The running update of a locked window on a locked node."""
    row = (await tx.execute(_READ_RUNNING, {"window_id": window_id, "node_id": node_id})).one()
    return EndedUpdate(
        FirmwareOrder.model_validate(row.firmware),
        None if row.outcome is None else BmcTaskOutcome(row.outcome),
        row.failure,
        _progress(row.progress),
        _result(row.result),
    )


async def read_order(tx: Transaction, node_id: UUID, task_id: UUID) -> Ordered | None:
    """What the window orders whose task on the node this is; None if there is none."""
    row = (await tx.execute(_READ_ORDER, {"task_id": task_id, "node_id": node_id})).first()
    return None if row is None else Ordered(FirmwareOrder.model_validate(row.firmware), row.seconds_max)


async def read_progress(tx: Transaction, task_id: UUID) -> FirmwareProgress | None:
    """What is stored of the locked task."""
    return _progress((await tx.execute(_READ_PROGRESS, {"id": task_id})).scalar_one())


async def store_progress(tx: Transaction, task_id: UUID, progress: FirmwareProgress) -> None:
    """The update of the locked, open task is this far."""
    await tx.execute(_STORE_PROGRESS, {"id": task_id, "progress": progress.model_dump_json()})


async def store_result(tx: Transaction, task_id: UUID, result: FirmwareResult) -> None:
    """What the agent has read before and after the update of the locked task."""
    await tx.execute(_STORE_RESULT, {"id": task_id, "result": result.model_dump_json()})


def _progress(stored: JsonObject | None) -> FirmwareProgress | None:
    return None if stored is None else FirmwareProgress.model_validate(stored)


def _result(stored: JsonObject | None) -> FirmwareResult | None:
    """What was stored; None too for what a later version has stored and this one cannot read."""
    try:
        return None if stored is None else FirmwareResult.model_validate(stored)
    except ValidationError:
        return None
