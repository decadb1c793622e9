"""SQL of fault reports: written, listed, their replacements concluded, deleted after their retention.

The release of the allocation closes them and puts its units into quarantine (`quarantine_reported_units`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import bindparam, select

from orchestrator.allocations.states import AllocationState, ReplacementOutcome, Symptom
from orchestrator.allocations.subject import Subject
from orchestrator.allocations.tables import fault_reports
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.operations.store.operations import Operation
from orchestrator.placement.outcomes import LostRace, NoRoom
from orchestrator.placement.ranking import Choice
from orchestrator.placement.refusals import refusal_of_tenant
from orchestrator.problems import Problem
from orchestrator.tenants.principals import Actor

REPLACES = "replaces:"
"""Prefix of the operation keys of allocations that replace a faulty one."""
_QUOTA = "fault_reports"


@dataclass(frozen=True, slots=True)
class FaultReport:
    """A fault that a tenant reported. `closed_at`: its units were released and are in quarantine."""

    id: UUID
    tenant_id: UUID
    allocation_id: UUID
    node_id: UUID
    slots: list[int]
    symptom: str
    evidence: str
    details: dict[str, str]
    replace: bool
    reported_at: datetime
    reported_by: str
    closed_at: datetime | None
    replacement_id: UUID | None
    replacement_outcome: str | None
    waits_for: str | None
    waits_since: datetime | None
    waits_until: datetime | None


@dataclass(frozen=True, slots=True)
class Fault:
    """What the tenant says of the fault."""

    symptom: Symptom
    evidence: str
    details: dict[str, str]


@dataclass(frozen=True, slots=True)
class Standing:
    """Open reports of an allocation, and whether one of them has a replacement in progress."""

    open_reports: int
    replacing: bool


@dataclass(frozen=True, slots=True)
class Search:
    """Where a replacement may be placed: its pool and the classes of nodes, best first."""

    pool_id: int
    choices: Sequence[Choice]


@dataclass(frozen=True, slots=True)
class Replacement:
    """A replacement in progress, with both nodes locked; the states are None for allocations that were archived."""

    id: UUID
    allocation_id: UUID
    replacement_id: UUID
    symptom: str
    old_state: AllocationState | None
    new_state: AllocationState | None
    overdue: bool


PlacementOfReplacement = UUID | NoRoom | LostRace | Problem
"""The allocation placed; no room; room on locked nodes alone; or the refusal of the tenant."""

_COLUMNS = [fault_reports.c[name] for name in FaultReport.__slots__]
_READ = select(*_COLUMNS).where(fault_reports.c.id == bindparam("id"))
_LIST = select(*_COLUMNS).where(fault_reports.c.id > bindparam("after")).order_by(fault_reports.c.id)
_STANDING = """
select count(*) as open_reports, coalesce(bool_or(waits_for is not null), false) as replacing
from fault_reports where allocation_id = :allocation_id and closed_at is null
"""
_LIMIT = "select lock_quota(:tenant_id, :quota, :default)"
_COUNT_LAST_DAY = """
select count(*) from fault_reports
where tenant_id = :tenant_id and reported_at > clock_timestamp() - make_interval(days => 1)
"""
_INSERT = """
insert into fault_reports (id, tenant_id, allocation_id, node_id, slots, symptom, evidence, details, replace, reported_by,
                           replacement_id, waits_for, waits_since, waits_until)
select :id, a.tenant_id, a.id, a.node_id,
       array(select (unit - n.unit_base)::smallint
             from unnest(c.units) part, generate_series(lower(part), upper(part) - 1) unit order by unit),
       :symptom, :evidence, cast(:details as jsonb), cast(:replacement_id as uuid) is not null, :reported_by,
       cast(:replacement_id as uuid), w.waits_for, w.waits_since, w.waits_since + make_interval(secs => :wait_seconds)
from allocations a join claims c on c.id = a.claim_id join nodes n on n.id = a.node_id
     left join (select 'replacement' as waits_for, clock_timestamp() as waits_since) w
     on cast(:replacement_id as uuid) is not null
where a.id = :allocation_id
"""
_NEW_ID = "select uuidv7()"
_PLACE = "select place_replacement(cast(:item as jsonb))"
_FIND_WAITING = """
select f.id from fault_reports f
left join allocations o on o.id = f.allocation_id left join allocations r on r.id = f.replacement_id
where f.waits_for is not null
  and (o.state is distinct from 'active' or r.state is null or r.state not in ('requested', 'provisioning')
       or f.waits_until <= clock_timestamp())
order by f.waits_until, f.id limit :limit
"""
_LOCK_NODES = """
select from nodes where id in (
    select a.node_id from fault_reports f join allocations a on a.id in (f.allocation_id, f.replacement_id) where f.id = :id)
order by id for no key update
"""
# A state changes under its node's lock only, so it stays as it is read here.
_READ_WAITING = """
select f.id, f.allocation_id, f.replacement_id, f.symptom, o.state as old_state, r.state as new_state,
       f.waits_until <= clock_timestamp() as overdue
from fault_reports f
left join allocations o on o.id = f.allocation_id left join allocations r on r.id = f.replacement_id
where f.id = :id and f.waits_for is not null
"""
_CONCLUDE = """
update fault_reports set replacement_outcome = :outcome, waits_for = null, waits_since = null, waits_until = null
where id = :id and waits_for is not null
"""
# The clock is read once: a comparison with a volatile function would read the whole index.
_RETIRE = """
with over as (
    select id from fault_reports
    where closed_at < (select clock_timestamp() - make_interval(secs => :seconds)) and waits_for is null
    order by closed_at, id limit :limit for update skip locked
)
delete from fault_reports where id in (select id from over)
"""


async def read_standing(tx: Transaction, allocation_id: UUID) -> Standing:
    """The open reports of a locked allocation."""
    return Standing(**(await tx.execute(_STANDING, {"allocation_id": allocation_id})).one()._mapping)


async def is_rate_reached(tx: Transaction, tenant_id: UUID, limit: int) -> bool:
    """Whether the tenant has sent as many reports in the last day as it may; others of it wait until this commits."""
    values = {"tenant_id": tenant_id, "quota": _QUOTA, "default": limit}
    allowed: int = (await tx.execute(_LIMIT, values)).scalar_one()
    sent: int = (await tx.execute(_COUNT_LAST_DAY, {"tenant_id": tenant_id})).scalar_one()
    return sent >= allowed


async def draw_report_id(tx: Transaction) -> UUID:
    """The id of a new report, later in the list than those before."""
    drawn: UUID = (await tx.execute(_NEW_ID)).scalar_one()
    return drawn


async def place_replacement(
    tx: Transaction, subject: Subject, report_id: UUID, search: Search, operation: Operation, actor: Actor, start: float
) -> PlacementOfReplacement:
    """Place an allocation like the locked one beside it."""
    item = {
        "allocation_id": str(subject.id),
        "pool_id": search.pool_id,
        "classes": [choice.fit.number for choice in search.choices],
        "lows": [choice.low for choice in search.choices],
        "highs": [choice.high for choice in search.choices],
        "start_seconds": start,
        "own_key": f"{REPLACES}{report_id}",
        "fingerprint": operation.fingerprint.hex(),
        "correlation_id": str(uuid4()),
        "key": operation.key,
        "request_id": operation.request_id,
        "actor_id": actor.id,
    }
    placed = (await tx.execute(_PLACE, {"item": json.dumps(item)})).scalar_one()
    match placed["outcome"]:
        case "created":
            return UUID(placed["allocation_id"])
        case "no_room":
            return NoRoom()
        case "busy":
            return LostRace()
        case word:
            return refusal_of_tenant(word)


async def insert_report(
    tx: Transaction,
    subject: Subject,
    report_id: UUID,
    fault: Fault,
    actor: Actor,
    *,
    replacement_id: UUID | None,
    wait_seconds: float,
) -> FaultReport:
    """Store the report with the slots that the locked allocation has."""
    values = {
        "id": report_id, "allocation_id": subject.id, "symptom": fault.symptom.value, "evidence": fault.evidence,
        "details": json.dumps(fault.details), "reported_by": f"{actor.kind.value}:{actor.id}",
        "replacement_id": replacement_id, "wait_seconds": wait_seconds,
    }  # fmt: skip
    await tx.execute(_INSERT, values)
    found = await read_report(tx, report_id)
    assert found is not None, "it was inserted"
    return found


async def read_report(reading: Reading, report_id: UUID) -> FaultReport | None:
    """One report."""
    row = (await reading.execute(_READ, {"id": report_id})).first()
    return None if row is None else FaultReport(**row._mapping)


async def list_reports(
    reading: Reading, tenant_id: UUID | None, *, every: bool, after: UUID, limit: int
) -> list[FaultReport]:
    """Up to `limit` reports of the tenant, or for None of all, behind this id, the oldest first; with `every`, also closed."""
    page = _LIST.limit(limit)
    if tenant_id is not None:
        page = page.where(fault_reports.c.tenant_id == tenant_id)
    if not every:
        page = page.where(fault_reports.c.closed_at.is_(None))
    return [FaultReport(**row._mapping) for row in await reading.execute(page, {"after": after})]


async def find_ended_replacements(reading: Reading, limit: int) -> list[UUID]:
    """Reports whose replacement can be concluded, the earliest deadline first."""
    return list((await reading.execute(_FIND_WAITING, {"limit": limit})).scalars())


async def lock_replacement(tx: Transaction, report_id: UUID) -> Replacement | None:
    """Lock the nodes of both allocations; None if the replacement is concluded."""
    await tx.execute(_LOCK_NODES, {"id": report_id})
    row = (await tx.execute(_READ_WAITING, {"id": report_id})).first()
    if row is None:
        return None
    states = {name: None if row._mapping[name] is None else AllocationState(row._mapping[name]) for name in _STATES}
    return Replacement(**{**row._mapping, **states})


_STATES = ("old_state", "new_state")


async def conclude_replacement(tx: Transaction, report_id: UUID, outcome: ReplacementOutcome) -> None:
    """The replacement in progress has ended so."""
    await tx.execute(_CONCLUDE, {"id": report_id, "outcome": outcome.value})


async def delete_over(tx: Transaction, retention_seconds: float, limit: int) -> int:
    """Delete at most `limit` closed reports past their retention, the earliest first; return how many."""
    return (await tx.execute(_RETIRE, {"seconds": retention_seconds, "limit": limit})).rowcount
