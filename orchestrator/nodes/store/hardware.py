"""SQL of hardware by serial number: places, history and repairs.

The quarantine of a slot and a tenant's fault report are written into the history by triggers (`note_quarantine`,
`note_fault_report`), so that every statement that begins or ends one does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Text, Uuid, bindparam, select, tuple_

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.nodes.hardware.rules import Happened, PartFault, Parts
from orchestrator.nodes.hardware.tables import hardware_places, hardware_repairs
from orchestrator.tenants.principals import Actor

_PLACE = """
select place_hardware(:node_id, cast(:parts as jsonb), cast(:known as text[]), cast(:unread as text[]), :actor)
"""
_NOTE_FAULTS = "select note_faults(:node_id, cast(:faults as jsonb), :actor)"
_LOCK = "select lock_serials(array[cast(:serial as text)])"
_KIND = """
select kind from (
    (select kind, 0 as rank from hardware_places where serial = :serial order by missing_since is not null, since desc limit 1)
    union all (select kind, 1 from hardware_history where serial = :serial order by id desc limit 1)
    union all (select kind, 2 from hardware_repairs where serial = :serial order by id desc limit 1)
) known order by rank limit 1
"""
_PLACES = """
select serial, node_id, kind, model, slots, positions, since, missing_since, contested_since from hardware_places
where serial = :serial order by since, node_id limit :limit
"""
_HISTORY = """
select id, serial, kind, happened, node_id, slots, happened_at, actor, detail, evidence, reference, contested
from hardware_history where serial = :serial and (cast(:before as uuid) is null or id < :before) order by id desc limit :limit
"""
# Where it is while the repair is opened or closed: the node that has it, or had it last.
_NOTE_REPAIR = """
insert into hardware_history (serial, kind, happened, node_id, slots, actor, detail, reference, contested)
select r.serial, r.kind, :happened, p.node_id, coalesce(p.slots, '{}'), :actor, :detail, r.id,
       coalesce(p.contested_since is not null, false)
from hardware_repairs r left join lateral (
    select node_id, slots, contested_since from hardware_places
    where serial = r.serial order by missing_since is not null, since limit 1) p on true
where r.id = :id
"""
_OPEN = """
insert into hardware_repairs (serial, kind, reason, opened_by) values (:serial, :kind, :reason, :actor)
returning id, serial, kind, reason, opened_at, opened_by, closed_at, closed_by, result
"""
_CLOSE = """
update hardware_repairs set closed_at = clock_timestamp(), closed_by = :actor, result = :result
where id = :id and closed_at is null
returning id, serial, kind, reason, opened_at, opened_by, closed_at, closed_by, result
"""
_READ_REPAIR = """
select id, serial, kind, reason, opened_at, opened_by, closed_at, closed_by, result from hardware_repairs where id = :id
"""
_READ_OPEN = """
select id, serial, kind, reason, opened_at, opened_by, closed_at, closed_by, result from hardware_repairs
where serial = :serial and closed_at is null
"""
_COUNT = """
select (select count(*) from hardware_places where contested_since is not null) as contested,
       (select count(*) from hardware_places where missing_since is not null) as missing,
       (select count(*) from hardware_repairs where closed_at is null) as in_repair
"""
# Of a subquery the clock is read once, so that the index ends the scan.
_RETIRE = """
with entries as (
    delete from hardware_history where id in (
        select id from hardware_history where happened_at < (select clock_timestamp() - make_interval(secs => :seconds))
        order by happened_at limit :limit)
    returning 1
), repairs as (
    delete from hardware_repairs where id in (
        select id from hardware_repairs where closed_at < (select clock_timestamp() - make_interval(secs => :seconds))
        order by closed_at limit :limit)
    returning 1
)
select (select count(*) from entries) + (select count(*) from repairs)
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a piece of hardware is, as its node reports it."""

    serial: str
    node_id: UUID
    kind: str
    model: str | None
    slots: list[int]
    positions: list[str]
    since: datetime
    missing_since: datetime | None
    contested_since: datetime | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the history of a piece of hardware."""

    id: UUID
    serial: str
    kind: str
    happened: str
    node_id: UUID | None
    slots: list[int]
    happened_at: datetime
    actor: str
    detail: str
    evidence: str | None
    reference: UUID | None
    contested: bool


@dataclass(frozen=True, slots=True)
class Repair:
    """A repair of a piece of hardware; open until `closed_at`."""

    id: UUID
    serial: str
    kind: str
    reason: str
    opened_at: datetime
    opened_by: str
    closed_at: datetime | None
    closed_by: str | None
    result: str | None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which places a list has; None and False: all."""

    node_id: UUID | None = None
    kind: str | None = None
    contested: bool = False
    missing: bool = False


_LIST_PLACES = (
    select(*(hardware_places.c[name] for name in Place.__slots__))
    .where(
        tuple_(hardware_places.c.serial, hardware_places.c.node_id)
        > tuple_(bindparam("after_serial", type_=Text), bindparam("after_node", type_=Uuid))
    )
    .order_by(hardware_places.c.serial, hardware_places.c.node_id)
)
_LIST_REPAIRS = (
    select(*(hardware_repairs.c[name] for name in Repair.__slots__))
    .where(hardware_repairs.c.id > bindparam("after", type_=Uuid))
    .order_by(hardware_repairs.c.id)
)


async def place_hardware(tx: Transaction, node_id: UUID, found: Parts, actor: Actor) -> int:
    """Record where these pieces are now, and what changed, in the history; the caller has locked the node.

    Returns how many entries the node's bound left out, in which case nothing was recorded.
    """
    values = {
        "node_id": node_id, "parts": json.dumps([asdict(part) for part in found.parts]), "known": list(found.known),
        "unread": list(found.unread), "actor": f"{actor.kind.value}:{actor.id}",
    }  # fmt: skip
    left_out: int = (await tx.execute(_PLACE, values)).scalar_one()
    return left_out


async def note_faults(tx: Transaction, node_id: UUID, faults: Sequence[PartFault], actor: Actor) -> int:
    """Record faults of what is at these positions of the node, each at most once a day.

    Returns how many entries the node's bound left out; the caller has locked the node.
    """
    if not faults:
        return 0
    written = json.dumps([asdict(fault) for fault in faults])
    values = {"node_id": node_id, "faults": written, "actor": f"{actor.kind.value}:{actor.id}"}
    left_out: int = (await tx.execute(_NOTE_FAULTS, values)).scalar_one()
    return left_out


async def lock_serial(tx: Transaction, serial: str) -> None:
    """Wait for others that change the places or repairs of this serial number."""
    await tx.execute(_LOCK, {"serial": serial})


async def find_kind(reading: Reading, serial: str) -> str | None:
    """What the piece with this serial number is; None: nothing is known of it."""
    kind: str | None = (await reading.execute(_KIND, {"serial": serial})).scalar()
    return kind


async def list_places(reading: Reading, wanted: Filter, *, after: tuple[str, UUID], limit: int) -> list[Place]:
    """Up to `limit` places behind this one, in the order of their serial numbers and nodes."""
    columns = hardware_places.c
    page = _LIST_PLACES.limit(limit)
    if wanted.node_id is not None:
        page = page.where(columns.node_id == wanted.node_id)
    if wanted.kind is not None:
        page = page.where(columns.kind == wanted.kind)
    if wanted.contested:
        page = page.where(columns.contested_since.is_not(None))
    if wanted.missing:
        page = page.where(columns.missing_since.is_not(None))
    rows = await reading.execute(page, {"after_serial": after[0], "after_node": after[1]})
    return [Place(**row._mapping) for row in rows]


async def read_places(reading: Reading, serial: str, limit: int) -> list[Place]:
    """Every place of a serial number, the earliest first; several of them are contested."""
    return [Place(**row._mapping) for row in await reading.execute(_PLACES, {"serial": serial, "limit": limit})]


async def list_history(reading: Reading, serial: str, *, before: UUID | None, limit: int) -> list[Entry]:
    """Up to `limit` entries before this one, the newest first."""
    rows = await reading.execute(_HISTORY, {"serial": serial, "before": before, "limit": limit})
    return [Entry(**row._mapping) for row in rows]


async def open_repair(tx: Transaction, serial: str, kind: str, reason: str, by: str) -> Repair:
    """Open a repair; the caller has locked the serial number and found no open one."""
    row = (await tx.execute(_OPEN, {"serial": serial, "kind": kind, "reason": reason, "actor": by})).one()
    repair = Repair(**row._mapping)
    await _note(tx, repair, Happened.REPAIR_OPENED, reason, by)
    return repair


async def close_repair(tx: Transaction, repair_id: UUID, result: str, by: str) -> Repair:
    """Close a repair; the caller has locked its serial number and found it open."""
    row = (await tx.execute(_CLOSE, {"id": repair_id, "result": result, "actor": by})).one()
    repair = Repair(**row._mapping)
    await _note(tx, repair, Happened.REPAIR_CLOSED, result, by)
    return repair


async def _note(tx: Transaction, repair: Repair, happened: Happened, detail: str, by: str) -> None:
    await tx.execute(_NOTE_REPAIR, {"id": repair.id, "happened": happened.value, "detail": detail, "actor": by})


async def read_repair(reading: Reading, repair_id: UUID) -> Repair | None:
    """One repair."""
    row = (await reading.execute(_READ_REPAIR, {"id": repair_id})).first()
    return None if row is None else Repair(**row._mapping)


async def read_open_repair(reading: Reading, serial: str) -> Repair | None:
    """The open repair of a serial number."""
    row = (await reading.execute(_READ_OPEN, {"serial": serial})).first()
    return None if row is None else Repair(**row._mapping)


async def list_repairs(reading: Reading, *, serial: str | None, every: bool, after: UUID, limit: int) -> list[Repair]:
    """Up to `limit` repairs behind this id, the oldest first; with `every`, also closed ones."""
    page = _LIST_REPAIRS.limit(limit)
    if serial is not None:
        page = page.where(hardware_repairs.c.serial == serial)
    if not every:
        page = page.where(hardware_repairs.c.closed_at.is_(None))
    return [Repair(**row._mapping) for row in await reading.execute(page, {"after": after})]


async def count_hardware(reading: Reading) -> dict[str, int]:
    """How many places are contested or missing, and how many repairs are open."""
    return dict((await reading.execute(_COUNT)).one()._mapping)


async def delete_over(tx: Transaction, retention_seconds: float, limit: int) -> int:
    """Delete at most `limit` entries and as many closed repairs past their retention; return how many."""
    deleted: int = (await tx.execute(_RETIRE, {"seconds": retention_seconds, "limit": limit})).scalar_one()
    return deleted
