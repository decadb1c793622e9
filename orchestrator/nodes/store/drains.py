"""SQL of drains. Every change holds the lock of the node's row; a trigger deletes the drain of a node that is not draining."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.maintenance.store import Target
from orchestrator.nodes.drains.rules import REMAINING_MAX, AtDeadline, Drain, DrainOrder, Remaining

FOREVER = datetime(9999, 12, 31, tzinfo=UTC)
"""Later than any claim begins."""
_READ = """
select begun_at, begun_by, reason, deadline, at_deadline, overdue_at, drained_at, waits_for, waits_since, waits_until
from node_drains d where d.node_id = :node_id and exists (select from nodes n where n.id = d.node_id and n.state = 'draining')
"""
_WRITE = """
insert into node_drains (node_id, begun_by, reason, deadline, at_deadline, waits_for, waits_since, waits_until)
values (:node_id, :by, :reason, :deadline, :at_deadline, 'claims', clock_timestamp(), :deadline)
on conflict (node_id) do update set
    begun_at = case when :goes_on then node_drains.begun_at else excluded.begun_at end,
    begun_by = excluded.begun_by, reason = excluded.reason, deadline = excluded.deadline, at_deadline = excluded.at_deadline,
    overdue_at = null, drained_at = null, waits_for = excluded.waits_for, waits_since = excluded.waits_since,
    waits_until = excluded.waits_until
"""
# What occupies units after its right has ended is still on the node; a maintenance window is not.
_REMAINING = """
select c.owner_kind || 's/' || c.owner_id as owner, c.tenant_id, coalesce(a.state, r.state, 'unknown') as state,
       lower(c.during) as starts_at, upper(c.during) as ends_at
from claims c left join allocations a on c.owner_kind = 'allocation' and a.id = c.owner_id
     left join reservations r on c.owner_kind = 'reservation' and r.id = c.owner_id
where c.node_id = :node_id and c.closed_at is null and c.owner_kind <> 'maintenance'
order by lower(c.during), c.id limit :limit
"""
_COUNT = """
select count(*) from claims where node_id = :node_id and closed_at is null and owner_kind <> 'maintenance'
"""
# Those that the deadline may release; units have one right at a time, so that they are at most as many as the slots.
_ALLOCATIONS = """
select id, tenant_id, correlation_id from allocations
where id = any (array(select owner_id from claims where node_id = :node_id and closed_at is null and booked
                                                    and owner_kind = 'allocation')) order by id
"""
_TARGET = "select int8multirange(int8range(unit_base, unit_base + slot_count))::text from nodes where id = :node_id"
_DUE = """
select d.node_id from node_drains d join nodes n on n.id = d.node_id and n.state = 'draining'
where d.drained_at is null
  and (d.waits_until <= clock_timestamp()
       or not exists (select from claims c where c.node_id = d.node_id and c.closed_at is null
                                             and c.owner_kind <> 'maintenance'))
order by d.waits_until, d.node_id limit :limit
"""
_STANDING = """
select n.name, n.state = 'draining' and d.drained_at is null as is_open,
       coalesce(d.waits_until <= clock_timestamp(), false) as is_over,
       (select count(*) from claims c where c.node_id = n.id and c.closed_at is null and c.owner_kind <> 'maintenance') as claims
from nodes n join node_drains d on d.node_id = n.id where n.id = :node_id
"""
_OVERDUE = "update node_drains set overdue_at = clock_timestamp(), waits_until = null where node_id = :node_id"
_DRAINED = """
update node_drains set drained_at = clock_timestamp(), waits_for = null, waits_since = null, waits_until = null
where node_id = :node_id
"""
_TO_RELEASE = """
select d.node_id, c.owner_id as allocation_id, c.id as claim_id
from node_drains d join nodes n on n.id = d.node_id and n.state = 'draining'
cross join lateral (select owner_id, id from claims where node_id = d.node_id and closed_at is null and booked
                                                      and owner_kind = 'allocation' offset 0) c
where d.drained_at is null and d.overdue_at is not null and d.at_deadline = 'release' and c.id > :after
order by c.id limit :limit
"""
_RELEASES = """
select exists (select from node_drains d join nodes n on n.id = d.node_id and n.state = 'draining'
               where d.node_id = :node_id and d.overdue_at is not null and d.at_deadline = 'release')
"""


@dataclass(frozen=True, slots=True)
class Tenancy:
    """An allocation with a right to units of the node."""

    id: UUID
    tenant_id: UUID
    correlation_id: UUID


@dataclass(frozen=True, slots=True)
class ToRelease:
    """An allocation that an overdue drain releases, with its node and its claim."""

    node_id: UUID
    allocation_id: UUID
    claim_id: int


@dataclass(frozen=True, slots=True)
class Standing:
    """An unfinished drain, under the node's lock. `is_over`: its deadline has come and was not announced."""

    name: str
    is_open: bool
    is_over: bool
    claims: int


async def read_drain(reading: Reading, node_id: UUID) -> Drain | None:
    """The drain of the node; None if it is not draining, or an earlier version of Berth drained it."""
    row = (await reading.execute(_READ, {"node_id": node_id})).first()
    return None if row is None else Drain(**{**row._mapping, "at_deadline": AtDeadline(row.at_deadline)})


async def write_drain(tx: Transaction, node_id: UUID, order: DrainOrder, *, by: str, goes_on: bool) -> Drain:
    """Begin the drain of a locked, draining node, or give it another order if it `goes_on`."""
    values = {
        "node_id": node_id, "by": by, "reason": order.reason, "deadline": order.deadline,
        "at_deadline": order.at_deadline.value, "goes_on": goes_on,
    }  # fmt: skip
    await tx.execute(_WRITE, values)
    written = await read_drain(tx, node_id)
    assert written is not None, "the locked node is draining"
    return written


async def read_remaining(reading: Reading, node_id: UUID) -> list[Remaining]:
    """What is still on the node, by its start, at most `REMAINING_MAX`."""
    rows = await reading.execute(_REMAINING, {"node_id": node_id, "limit": REMAINING_MAX})
    return [Remaining(**row._mapping) for row in rows]


async def drain_document(reading: Reading, node_id: UUID) -> JsonObject | None:
    """The drain of the node as clients see it, with what is still on the node."""
    drain = await read_drain(reading, node_id)
    if drain is None:
        return None
    remaining = [asdict(one) for one in await read_remaining(reading, node_id)]
    count = (await reading.execute(_COUNT, {"node_id": node_id})).scalar_one()
    return {**asdict(drain), "remaining": remaining, "remaining_count": count}


async def read_tenancies(reading: Reading, node_id: UUID) -> list[Tenancy]:
    """Every allocation with a right to units of the node, by id."""
    return [Tenancy(**row._mapping) for row in await reading.execute(_ALLOCATIONS, {"node_id": node_id})]


async def read_target(reading: Reading, node_id: UUID) -> list[Target]:
    """All units of the node; none if there is no such node."""
    units = (await reading.execute(_TARGET, {"node_id": node_id})).scalar()
    return [] if units is None else [Target(node_id, units)]


async def find_due(reading: Reading, limit: int) -> list[UUID]:
    """Up to `limit` nodes that are empty or whose deadline has come, the earliest deadline first."""
    return list((await reading.execute(_DUE, {"limit": limit})).scalars())


async def read_standing(tx: Transaction, node_id: UUID) -> Standing | None:
    """What there is to do about the drain of a locked node."""
    row = (await tx.execute(_STANDING, {"node_id": node_id})).first()
    return None if row is None else Standing(**row._mapping)


async def note_overdue(tx: Transaction, node_id: UUID) -> None:
    """The deadline of a locked node is announced."""
    await tx.execute(_OVERDUE, {"node_id": node_id})


async def note_drained(tx: Transaction, node_id: UUID) -> None:
    """Nothing is left on a locked node."""
    await tx.execute(_DRAINED, {"node_id": node_id})


async def find_to_release(reading: Reading, after: int, limit: int) -> list[ToRelease]:
    """Up to `limit` allocations that an overdue drain releases, by claim, after this one."""
    return [ToRelease(**row._mapping) for row in await reading.execute(_TO_RELEASE, {"after": after, "limit": limit})]


async def is_releasing(tx: Transaction, node_id: UUID) -> bool:
    """Whether the drain of a locked node releases allocations now."""
    found: bool = (await tx.execute(_RELEASES, {"node_id": node_id})).scalar_one()
    return found
