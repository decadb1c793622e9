"""Orphans of nodes: recorded, decided about, destroyed. A change holds the lock of the node's row, so of its slots too."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from sqlalchemy import bindparam, func, select

from berth.process.json_objects import JsonObject
from node_agent.protocol import ReleaseParameters, TaskBody
from orchestrator.allocations.waits import Wait
from orchestrator.catalogue.shapes import Shape
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.nodes.orphan_states import DestroyTask, OrphanState
from orchestrator.nodes.store.slot_service import keep_slots
from orchestrator.nodes.tables import node_orphans, nodes
from orchestrator.tasks.signing import TaskSigner
from orchestrator.tasks.states import TaskState
from orchestrator.tasks.store.tasks import NOT_BEFORE_ALLOWANCE_SECONDS, RELEASE_TYPES
from orchestrator.tenants.principals import Actor


@dataclass(frozen=True, slots=True)
class Orphan:
    """One orphan as operators see it. `slots` are indexes on the node."""

    id: UUID
    node_id: UUID
    allocation_id: UUID
    slots: list[int]
    fence: int | None
    state: str
    first_seen_at: datetime
    last_seen_at: datetime
    decided_by: str | None
    decided_at: datetime | None
    reason: str | None
    adopted_for: UUID | None
    attempts: int
    failure_code: str | None
    failure_detail: str | None
    destroyed_at: datetime | None
    waits_for: str | None
    waits_since: datetime | None
    waits_until: datetime | None
    row_version: int


@dataclass(frozen=True, slots=True)
class LockedOrphan:
    """An orphan and its node, locked, and what is to be known to go on; `clock` was read after the locks."""

    orphan: Orphan
    node_name: str
    node_epoch: int
    shape: Shape
    slot_count: int
    faults: dict[str, str]
    clock: datetime


_ORPHANS = select(*(node_orphans.c[name] for name in Orphan.__slots__))
_LOCK_NODE = "select id from nodes where id = (select node_id from node_orphans where id = :id) for no key update"
_LOCK = (
    _ORPHANS.add_columns(
        nodes.c.name.label("node_name"), nodes.c.epoch.label("node_epoch"), nodes.c.shape, nodes.c.slot_count, nodes.c.faults,
        func.clock_timestamp().label("clock"),
    )
    .join_from(node_orphans, nodes)
    .where(node_orphans.c.id == bindparam("id"))
    .with_for_update(of=node_orphans, key_share=True)
)  # fmt: skip
_INSERT = """
insert into node_orphans (node_id, allocation_id, slots, fence, waits_for, waits_since)
values (:node_id, :allocation_id, cast(:slots as smallint[]), :fence, 'operator', clock_timestamp())
returning id
"""
_SEEN = """
update node_orphans set last_seen_at = clock_timestamp(), slots = cast(:slots as smallint[]),
                        fence = coalesce(:fence, fence), row_version = row_version + 1
where id = :id
"""
_DECIDE = """
with at as materialized (select clock_timestamp() as now)
update node_orphans set state = :state, row_version = row_version + 1, decided_by = :decided_by, decided_at = at.now,
    reason = :reason, adopted_for = :adopted_for, attempts = 0, failure_code = null, failure_detail = null,
    waits_for = :waits_for, waits_since = at.now,
    waits_until = at.now + make_interval(secs => cast(:wait_seconds as float8))
from at where id = :id
"""
_GO_ON = """
with at as materialized (select clock_timestamp() as now)
update node_orphans set state = :state, row_version = row_version + 1, attempts = :attempts,
    failure_code = :failure_code, failure_detail = :failure_detail,
    destroyed_at = case when :state = 'destroyed' then at.now end, proof = cast(:proof as jsonb),
    waits_for = :waits_for, waits_since = case when cast(:waits_for as text) is not null then at.now end,
    waits_until = at.now + make_interval(secs => cast(:wait_seconds as float8))
from at where id = :id
"""
_LATEST_TASK = """
select state, result, failure_code, failure_detail, id, expires_at <= clock_timestamp() as overdue
from node_tasks where orphan_id = :id order by fence desc limit 1
"""
_DISTURBS = """
select exists (
    select from node_tasks t join allocations a on a.id = t.allocation_id join claims c on c.id = a.claim_id
    join nodes n on n.id = t.node_id
    cross join lateral unnest(cast(:slots as smallint[])) slot
    where t.node_id = :node_id and t.state in ('queued', 'dispatched') and c.units @> (n.unit_base + slot))
"""
_END_TASK = """
update node_tasks set state = :state, finished_at = clock_timestamp()
where orphan_id = :id and state in ('queued', 'dispatched')
"""
_INSERT_TASK = """
insert into node_tasks (id, node_id, node_epoch, type, orphan_id, fence, attempt, envelope, not_before, expires_at)
values (:id, :node_id, :node_epoch, :type, :orphan_id, :fence, :attempt, cast(:envelope as jsonb), :not_before, :expires_at)
"""
_UNDECIDED = """
select o.id from node_orphans o
left join allocations a on a.id = o.adopted_for left join claims c on c.id = a.claim_id
where o.state = 'destroying' or (o.state = 'adopted' and c.closed_at is not null)
order by o.waits_until, o.id limit :limit
"""
_PLACE = "select name, slot_count from nodes where id = :id"
_COUNT = "select state, count(*) as found from node_orphans where state <> 'destroyed' group by state"
_LIVES = """
select c.closed_at is null from allocations a join claims c on c.id = a.claim_id where a.id = :id and a.node_id = :node_id
"""


async def list_orphans(reading: Reading, node_id: UUID, *, every: bool, after: UUID, limit: int) -> list[Orphan]:
    """Up to `limit` orphans of a node, the oldest first; with `every`, also those destroyed."""
    page = _ORPHANS.where(node_orphans.c.node_id == node_id, node_orphans.c.id > after)
    if not every:
        page = page.where(node_orphans.c.state != OrphanState.DESTROYED.value)
    return [Orphan(**row._mapping) for row in await reading.execute(page.order_by(node_orphans.c.id).limit(limit))]


async def read_orphan(reading: Reading, orphan_id: UUID) -> Orphan:
    """One orphan that exists."""
    return Orphan(**(await reading.execute(_ORPHANS.where(node_orphans.c.id == orphan_id))).one()._mapping)


async def read_place(tx: Transaction, node_id: UUID) -> tuple[str, int]:
    """The name of a locked node, and how many slots it has. The worker may not read all that `nodes.read_node` shows."""
    row = (await tx.execute(_PLACE, {"id": node_id})).one()
    return row.name, row.slot_count


async def lock_orphan(tx: Transaction, orphan_id: UUID) -> LockedOrphan | None:
    """Lock its node, then itself. None if there is none."""
    if (await tx.execute(_LOCK_NODE, {"id": orphan_id})).first() is None:
        return None
    values = dict((await tx.execute(_LOCK, {"id": orphan_id})).one()._mapping)
    orphan = Orphan(**{name: values.pop(name) for name in Orphan.__slots__})
    return LockedOrphan(orphan, **{**values, "shape": Shape(values["shape"])})


async def insert_orphan(
    tx: Transaction, node_id: UUID, allocation_id: UUID, slots: list[int], fence: int | None
) -> UUID:
    """Record one, waiting for an operator; its slots are out of service from the commit on."""
    values = {"node_id": node_id, "allocation_id": allocation_id, "slots": slots, "fence": fence}
    orphan_id: UUID = (await tx.execute(_INSERT, values)).scalar_one()
    await keep_slots(tx, node_id)
    return orphan_id


async def see_again(tx: Transaction, orphan: Orphan, slots: list[int], fence: int | None) -> None:
    """The node still holds it, perhaps on more slots than were known."""
    await tx.execute(_SEEN, {"id": orphan.id, "slots": slots, "fence": fence})
    if slots != orphan.slots:
        await keep_slots(tx, orphan.node_id)


async def decide(
    tx: Transaction, orphan_id: UUID, state: OrphanState, actor: Actor, reason: str, *,
    waits_for: Wait, wait_seconds: float | None = None, adopted_for: UUID | None = None,
) -> None:  # fmt: skip
    """An admin's word: from here on all attempts are left again."""
    values = {"id": orphan_id, "state": state.value, "decided_by": f"{actor.kind.value}:{actor.id}", "reason": reason}
    wait = {"waits_for": waits_for.value, "wait_seconds": wait_seconds, "adopted_for": adopted_for}
    await tx.execute(_DECIDE, {**values, **wait})


async def go_on(
    tx: Transaction, orphan: Orphan, state: OrphanState, *, attempts: int, waits_for: Wait | None,
    wait_seconds: float | None = None, code: str | None = None, detail: str | None = None,
    proof: JsonObject | None = None,
) -> None:  # fmt: skip
    """The next step of what was decided."""
    values = {"id": orphan.id, "state": state.value, "attempts": attempts, "wait_seconds": wait_seconds}
    described = {"failure_code": code, "failure_detail": detail, "proof": None if proof is None else json.dumps(proof)}
    await tx.execute(_GO_ON, {**values, **described, "waits_for": None if waits_for is None else waits_for.value})
    if state is OrphanState.DESTROYED:
        await keep_slots(tx, orphan.node_id)


async def latest_task(tx: Transaction, orphan: Orphan) -> tuple[DestroyTask, str | None, str | None] | None:
    """The task issued last since the decision, with its failure's code and detail; None if there was none."""
    if orphan.attempts == 0:
        return None
    row = (await tx.execute(_LATEST_TASK, {"id": orphan.id})).one()
    return DestroyTask(TaskState(row.state), row.overdue, row.result), row.failure_code, row.failure_detail


async def disturbs_others(tx: Transaction, orphan: Orphan) -> bool:
    """Whether a task of an allocation is under way on one of its slots."""
    found: bool = (await tx.execute(_DISTURBS, {"node_id": orphan.node_id, "slots": orphan.slots})).scalar_one()
    return found


async def end_task(tx: Transaction, orphan_id: UUID, state: TaskState) -> None:
    """Its live task, if there is one, counts no more: expired or superseded."""
    await tx.execute(_END_TASK, {"id": orphan_id, "state": state.value})


async def issue_destruction(tx: Transaction, signer: TaskSigner, locked: LockedOrphan, valid_seconds: float) -> int:
    """Sign and queue a release of what the node calls by this id, under a new fence; answers the fence."""
    orphan = locked.orphan
    fence: int = (await tx.execute("select nextval('fences')")).scalar_one()
    body = TaskBody(
        task_id=uuid4(),
        type=RELEASE_TYPES[locked.shape],
        node_id=orphan.node_id,
        node_epoch=locked.node_epoch,
        allocation_id=orphan.allocation_id,
        fence=fence,
        parameters=ReleaseParameters(slots=orphan.slots, faults=locked.faults).model_dump(mode="json"),
        not_before=locked.clock - timedelta(seconds=NOT_BEFORE_ALLOWANCE_SECONDS),
        expires_at=locked.clock + timedelta(seconds=valid_seconds),
        key_id=signer.key_id,
    )
    values = {
        "id": body.task_id, "node_id": orphan.node_id, "node_epoch": locked.node_epoch, "type": body.type.value,
        "orphan_id": orphan.id, "fence": fence, "attempt": orphan.attempts + 1,
        "envelope": signer.sign(body).model_dump_json(), "not_before": body.not_before, "expires_at": body.expires_at,
    }  # fmt: skip
    await tx.execute(_INSERT_TASK, values)
    return fence


async def find_undecided(reading: Reading, limit: int) -> list[UUID]:
    """Orphans that something can be done about now: being destroyed, or adopted for an allocation that is over."""
    return list((await reading.execute(_UNDECIDED, {"limit": limit})).scalars())


async def count_orphans(reading: Reading) -> dict[str, int]:
    """How many there are by state, the destroyed ones left out."""
    return {row.state: row.found for row in await reading.execute(_COUNT)}


async def lives_on(reading: Reading, allocation_id: UUID, node_id: UUID) -> bool:
    """Whether this allocation holds units of that node."""
    return bool((await reading.execute(_LIVES, {"id": allocation_id, "node_id": node_id})).scalar())
