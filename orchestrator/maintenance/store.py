"""SQL of maintenance windows. The locks of its nodes order every change of a window, then that of its row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.maintenance import rules
from orchestrator.maintenance.refusals import MaintenanceTableFull
from orchestrator.maintenance.rules import Conflict
from orchestrator.maintenance.states import OwnerKind, WindowState
from orchestrator.problems import InvalidState, NotFound
from orchestrator.reservations.refusals import ResourceNotFound
from orchestrator.reservations.resource_names import NamedResources


@dataclass(frozen=True, slots=True)
class Target:
    """The units of a window on a node, as PostgreSQL writes a multirange."""

    node_id: UUID
    units: str


@dataclass(frozen=True, slots=True)
class Window:
    """A maintenance window. `resources`: its nodes and slots; `planned`: those that an allocation still holds in it.

    `task` is what it runs on each node, `tasks` what became of it there.
    """

    id: UUID
    starts_at: datetime
    ends_at: datetime
    reason: str
    state: WindowState
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    resources: list[str]
    planned: list[str]
    waits_for: str | None
    waits_since: datetime | None
    waits_until: datetime | None
    task: JsonObject | None
    tasks: list[JsonObject]

    @property
    def name(self) -> str:
        """The window as an object of audit and log."""
        return f"maintenance/{self.id}"


_MISSING = """
select name from maintenance_targets(cast(:nodes as uuid[]), cast(:slots as jsonb)) where node_id is null
"""
_TARGETS = """
select node_id, range_agg(part)::text as units from maintenance_targets(cast(:nodes as uuid[]), cast(:slots as jsonb))
group by node_id order by node_id
"""
_PLANNED = (
    "select node_id, planned::text as units from maintenance_units where window_id = :id and not isempty(planned)"
)
_LOCK_NODES = "select id from nodes where id = any(cast(:nodes as uuid[])) order by id for no key update"
_LOCK_RESERVATIONS = "select from reservations where id = any(cast(:ids as uuid[])) order by id for no key update"
_MOVE = "select move_claim(:claim_id, :node_id, :mask, :reason, clock_timestamp())"
_NOW = "select clock_timestamp()"
# A right alone is in the way: what still occupies units after its right has ended may be cleaned up within the window.
_CONFLICTS = """
select c.owner_kind, c.owner_id, c.id as claim_id, c.tenant_id, c.node_id, lower(c.during) as starts_at,
       upper(c.during) as ends_at, coalesce(a.sku, r.sku) as sku, a.correlation_id, r.gpus, r.region,
       case when r.state = 'hold' and r.expires_at <= clock_timestamp() then 'overdue'
            else coalesce(a.state, r.state, w.state, 'unknown') end as state,
       (select array_agg('slot:' || c.node_id || ':' || unit - n.unit_base order by unit)
        from unnest(c.units * t.units) part, generate_series(lower(part), upper(part) - 1) unit) as resources
from jsonb_to_recordset(cast(:targets as jsonb)) as t(node_id uuid, units int8multirange)
join nodes n on n.id = t.node_id
-- `offset 0`: by node, not by the index of units and times, which reads all of it for a time alone.
cross join lateral (select * from claims where node_id = t.node_id and closed_at is null and booked offset 0) c
left join allocations a on c.owner_kind = 'allocation' and a.id = c.owner_id
left join reservations r on c.owner_kind = 'reservation' and r.id = c.owner_id
left join maintenance_windows w on c.owner_kind = 'maintenance' and w.id = c.owner_id
where c.units && t.units and (not :of_a_sku or r.sku is not null)
  and c.during && tstzrange(least(greatest(cast(:starts_at as timestamptz), clock_timestamp()), cast(:ends_at as timestamptz)),
                            cast(:ends_at as timestamptz))
order by t.node_id, c.id limit :limit
"""
_COUNT_OPEN = "select count(*) from maintenance_windows where waits_until is not null"
_INSERT = """
insert into maintenance_windows (starts_at, ends_at, reason, waits_for, waits_since, waits_until)
values (:starts_at, :ends_at, :reason, 'start', clock_timestamp(), :starts_at) returning id
"""
_INSERT_UNITS = """
insert into maintenance_units (window_id, node_id, units)
select :window_id, t.node_id, t.units from jsonb_to_recordset(cast(:targets as jsonb)) as t(node_id uuid, units int8multirange)
"""
_CLAIM = """
select claim_maintenance(u.window_id, u.node_id)
from (select window_id, node_id from maintenance_units where window_id = :id order by node_id offset 0) u
"""
_BY_ID = """
select w.id, w.starts_at, w.ends_at, w.reason, w.state, w.created_at, w.started_at, w.ended_at, m.resources, m.planned,
       w.waits_for, w.waits_since, w.waits_until, t.task, t.tasks
from maintenance_windows w cross join lateral maintenance_names(w.id) m
cross join lateral maintenance_tasks_of(w.id, true) t where w.id = :id
"""
_LIST = """
select w.id, w.starts_at, w.ends_at, w.reason, w.state, w.created_at, w.started_at, w.ended_at, m.resources, m.planned,
       w.waits_for, w.waits_since, w.waits_until, t.task, t.tasks
from (select * from maintenance_windows
      where id > :after and (cast(:state as text) is null or state = :state) order by id limit :limit) w
cross join lateral maintenance_names(w.id) m cross join lateral maintenance_tasks_of(w.id, false) t order by w.id
"""
_NODES_OF = "select array_agg(node_id order by node_id) from maintenance_units where window_id = :id"
_LOCK = (
    "select state, waits_until <= clock_timestamp() as due from maintenance_windows where id = :id for no key update"
)
_RESETTING = """
select r.id from node_gpu_resets r
join maintenance_units u on u.node_id = r.node_id and u.window_id = :id
join slots s on s.node_id = r.node_id and s.slot_index = any (r.slots) and u.units @> s.unit
where r.ended_at is null and not exists (select from slot_quarantines q where q.unit = s.unit and q.returned_at is null)
order by r.id limit 1
"""
# The task of a request that was not issued yet is refused afterwards: nothing touches its GPUs.
_KEEP_OUT = """
insert into slot_quarantines (node_id, slot_index, unit, reason, quarantined_by, source)
select s.node_id, s.slot_index, s.unit, :reason, :by, 'operator'
from node_gpu_resets r
join maintenance_units u on u.node_id = r.node_id and u.window_id = :id
join slots s on s.node_id = r.node_id and s.slot_index = any (r.slots) and u.units @> s.unit
where r.ended_at is null and r.task_id is not null
  and not exists (select from slot_quarantines q where q.unit = s.unit and q.returned_at is null)
order by s.unit
returning node_id, slot_index
"""
_KEEP_SLOTS = "select keep_slots_v2(:node_id)"
_START = """
update maintenance_windows set state = 'active', started_at = clock_timestamp(), waits_for = 'end',
    waits_since = clock_timestamp(), waits_until = ends_at where id = :id and state = 'scheduled'
"""
_END = """
update maintenance_windows set state = :state, ended_at = clock_timestamp(), waits_for = null, waits_since = null,
    waits_until = null where id = :id and state = :before
"""
_CLOSE = "select close_maintenance_claims(:id)"
# A window whose task runs ends after it: the task has a deadline too.
_DUE = """
select w.id from maintenance_windows w where w.waits_until <= clock_timestamp()
  and not exists (select from maintenance_tasks k where k.window_id = w.id and k.state = 'running')
order by w.waits_until, w.id limit :limit
"""
# Claims first: of a window that is gone, nothing else would name them. Of a subquery the clock is read once, so that the index
# ends the scan; an array is looked up by index, where a subquery would be joined with the whole table.
_RETIRE = """
with over as (
    select id from maintenance_windows
    where ended_at < (select clock_timestamp() - make_interval(secs => :seconds))
    order by ended_at, id limit :limit for update skip locked
), claims_of as (
    delete from claims where owner_id = any (array(select id from over)) and owner_kind = 'maintenance'
), tasks_of as (
    delete from maintenance_tasks where window_id = any (array(select id from over))
), units_of as (
    delete from maintenance_units where window_id = any (array(select id from over))
)
delete from maintenance_windows where id = any (array(select id from over))
"""


async def find_targets(reading: Reading, named: NamedResources) -> list[Target]:
    """The units of these nodes and slots, by node. Raises `ResourceNotFound` for registered, retired and unknown ones."""
    values = _named(named)
    missing = [row.name for row in await reading.execute(_MISSING, values)]
    if missing or named.registered:
        raise ResourceNotFound.named([*missing, *named.registered])
    return [Target(row.node_id, row.units) for row in await reading.execute(_TARGETS, values)]


def _named(named: NamedResources) -> JsonObject:
    slots = [{"node": str(slot.node), "index": slot.index} for slot in named.slots]
    return {"nodes": list(named.nodes), "slots": json.dumps(slots)}


async def read_planned(tx: Transaction, window_id: UUID) -> list[Target]:
    """The units of a window that are still planned, by node."""
    return [Target(row.node_id, row.units) for row in await tx.execute(_PLANNED, {"id": window_id})]


async def lock_nodes(tx: Transaction, nodes: Sequence[UUID]) -> None:
    """Lock these nodes, by id."""
    await tx.execute(_LOCK_NODES, {"nodes": list(nodes)})


async def lock_reservations(tx: Transaction, reservations: Sequence[UUID]) -> None:
    """Lock these reservations, by id; the caller has locked the nodes."""
    await tx.execute(_LOCK_RESERVATIONS, {"ids": list(reservations)})


async def move_claim(tx: Transaction, claim_id: int, node_id: UUID, mask: int, reason: str) -> bool:
    """Move a reservation's claim, with its event and a new fence; False if these slots are not free in its window.

    The caller has locked both nodes and the reservation.
    """
    values = {"claim_id": claim_id, "node_id": node_id, "mask": mask, "reason": reason}
    moved: bool = (await tx.execute(_MOVE, values)).scalar_one()
    return moved


async def read_clock(reading: Reading) -> datetime:
    """The database's clock."""
    now: datetime = (await reading.execute(_NOW, {})).scalar_one()
    return now


async def find_conflicts(
    reading: Reading, targets: Sequence[Target], starts_at: datetime, ends_at: datetime, *,
    of_a_sku: bool = False, limit: int = rules.CONFLICTS_MAX + 1,
) -> list[Conflict]:  # fmt: skip
    """At most `limit` claims with a right to one of these units within the window, by node.

    `of_a_sku`: those of reservations of a SKU alone.
    """
    values = {
        "targets": _written(targets),
        "starts_at": starts_at,
        "ends_at": ends_at,
        "limit": limit,
        "of_a_sku": of_a_sku,
    }
    return [
        Conflict(
            owner_kind=OwnerKind(row.owner_kind), owner_id=row.owner_id, claim_id=row.claim_id, tenant_id=row.tenant_id,
            node_id=row.node_id, resources=tuple(row.resources), starts_at=row.starts_at, ends_at=row.ends_at,
            state=row.state, sku=row.sku, correlation_id=row.correlation_id, gpus=row.gpus, region=row.region,
        )
        for row in await reading.execute(_CONFLICTS, values)
    ]  # fmt: skip


def _written(targets: Sequence[Target]) -> str:
    return json.dumps([{"node_id": str(target.node_id), "units": target.units} for target in targets])


async def insert_window(
    tx: Transaction, targets: Sequence[Target], starts_at: datetime, ends_at: datetime, reason: str, *, open_max: int
) -> Window:
    """Write the window and claim its units, as far as they are free; the caller has locked the nodes.

    Raises `MaintenanceTableFull`.
    """
    if (await tx.execute(_COUNT_OPEN, {})).scalar_one() >= open_max:
        raise MaintenanceTableFull.at(open_max)
    values = {"starts_at": starts_at, "ends_at": ends_at, "reason": reason}
    window_id: UUID = (await tx.execute(_INSERT, values)).scalar_one()
    await tx.execute(_INSERT_UNITS, {"window_id": window_id, "targets": _written(targets)})
    await tx.execute(_CLAIM, {"id": window_id})
    return await read_window(tx, window_id)


async def read_window(reading: Reading, window_id: UUID) -> Window:
    """One window. Raises `NotFound`."""
    row = (await reading.execute(_BY_ID, {"id": window_id})).first()
    if row is None:
        raise NotFound(f"there is no maintenance window {window_id}")
    return _window(row._mapping)


async def list_windows(reading: Reading, state: WindowState | None, after: UUID, limit: int) -> list[Window]:
    """Up to `limit` windows after this id, in the order of their commits; of all states if `state` is None."""
    values = {"state": None if state is None else state.value, "after": after, "limit": limit}
    return [_window(row._mapping) for row in await reading.execute(_LIST, values)]


async def lock_window(tx: Transaction, window_id: UUID, *expected: WindowState) -> Window:
    """Lock the nodes of a window, then the window. Raises `NotFound`; `InvalidState` if its state is another one."""
    await lock_nodes(tx, (await tx.execute(_NODES_OF, {"id": window_id})).scalar_one() or [])
    await tx.execute(_LOCK, {"id": window_id})
    window = await read_window(tx, window_id)
    if window.state not in expected:
        raise InvalidState(f"the maintenance window is {window.state}", state=window.state)
    return window


async def lock_due(tx: Transaction, window_id: UUID) -> Window | None:
    """Lock a window whose start or end has come, after its nodes; None if it has not, or the window is gone."""
    await lock_nodes(tx, (await tx.execute(_NODES_OF, {"id": window_id})).scalar_one() or [])
    found = (await tx.execute(_LOCK, {"id": window_id})).first()
    return await read_window(tx, window_id) if found is not None and found.due else None


async def start_window(tx: Transaction, window_id: UUID) -> Window:
    """A locked, scheduled window becomes active."""
    started = await tx.execute(_START, {"id": window_id})
    assert started.rowcount == 1, "a locked, scheduled window stays scheduled"
    return await read_window(tx, window_id)


async def close_window(tx: Transaction, window: Window, state: WindowState) -> Window:
    """A locked window ends, and with it its right to all units."""
    ended = await tx.execute(_END, {"id": window.id, "state": state.value, "before": window.state.value})
    assert ended.rowcount == 1, "a locked window keeps its state"
    await tx.execute(_CLOSE, {"id": window.id})
    return await read_window(tx, window.id)


async def find_reset(tx: Transaction, window_id: UUID) -> UUID | None:
    """An open reset of GPUs whose slots only this window keeps out of service."""
    found: UUID | None = (await tx.execute(_RESETTING, {"id": window_id})).scalar()
    return found


async def keep_resetting_out(tx: Transaction, window_id: UUID, *, reason: str, by: str) -> list[tuple[UUID, int]]:
    """Take slots whose GPUs a task resets, and that only this locked window keeps out of service, into quarantine.

    Return the node and the index of each.
    """
    rows = await tx.execute(_KEEP_OUT, {"id": window_id, "reason": reason, "by": by})
    begun = [(row.node_id, row.slot_index) for row in rows]
    for node_id in sorted({node_id for node_id, _ in begun}):
        await tx.execute(_KEEP_SLOTS, {"node_id": node_id})
    return begun


async def find_due(reading: Reading, limit: int) -> list[UUID]:
    """Up to `limit` windows whose start or end has come, the earliest first."""
    return [row.id for row in await reading.execute(_DUE, {"limit": limit})]


async def delete_over(tx: Transaction, retention_seconds: float, limit: int) -> int:
    """Delete up to `limit` windows that ended so long ago, with their claims, the earliest first; return how many."""
    return (await tx.execute(_RETIRE, {"seconds": retention_seconds, "limit": limit})).rowcount


def _window(row: Mapping[Any, Any]) -> Window:
    return Window(**{**row, "state": WindowState(row["state"])})
