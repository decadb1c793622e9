"""SQL for active allocations that their node's complete inventories do not name (P9, failure 27)."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select, text

from orchestrator.allocations.tables import allocations
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.nodes.tables import allocation_absences, nodes

# Active before the inventory was taken, and not named in it.
_MISSED = """
select a.id from nodes n join allocations a on a.node_id = n.id
left join allocation_absences m on m.allocation_id = a.id
where n.id = any(:nodes) and a.state = 'active' and a.active_at < n.inventory_after
  and not n.inventory @> jsonb_build_array(jsonb_build_object('allocation_id', a.id))
  and (m.allocation_id is null or m.last_missed < n.inventory_after)
order by a.id limit :limit
"""
# Also one that became active since: its node answers a task of the lost interval, in which a release followed.
# A guest that a verb is just changing may be absent for a moment: its end is left to the health of allocations.
_LOST = """
select a.id from awaited_inventories w join restores r on r.epoch = w.epoch join nodes n on n.id = w.node_id
join allocations a on a.node_id = n.id
where n.id = any(:nodes) and n.inventory_after > greatest(r.closed_at, a.active_at) and a.state = 'active'
  and a.guest_verb is null and a.requested_at < r.closed_at
  and not n.inventory @> jsonb_build_array(jsonb_build_object('allocation_id', a.id))
  and (cast(:allocation_id as uuid) is null or a.id = :allocation_id)
order by a.id limit :limit
"""
_m, _a, _n = allocation_absences.alias("m"), allocations.alias("a"), nodes.alias("n")
_OVER = (
    select(_m.c.allocation_id)
    .select_from(_m.outerjoin(_a, _a.c.id == _m.c.allocation_id).outerjoin(_n, _n.c.id == _a.c.node_id))
    .where(
        text("""
            (a.id is null or a.state <> 'active'
             or (n.inventory_after > m.last_missed
                 and n.inventory @> jsonb_build_array(jsonb_build_object('allocation_id', a.id))))""")
    )
)
_COUNT = """
insert into allocation_absences as m (allocation_id, node_id, first_missed, last_missed)
select a.id, a.node_id, n.inventory_after, n.inventory_after
from allocations a join nodes n on n.id = a.node_id
where a.id = :id and a.state = 'active' and a.active_at < n.inventory_after
  and not n.inventory @> jsonb_build_array(jsonb_build_object('allocation_id', a.id))
on conflict (allocation_id) do update set last_missed = excluded.last_missed, inventories = m.inventories + 1
where m.last_missed < excluded.last_missed
returning inventories, reported_at is not null as reported, first_missed, last_missed
"""
_REPORT = "update allocation_absences set reported_at = clock_timestamp() where allocation_id = :id"
_FORGET = "delete from allocation_absences where allocation_id = :id returning reported_at is not null as reported"
_REPORTED = "select count(*) from allocation_absences where reported_at is not null"


@dataclass(frozen=True, slots=True)
class Absence:
    """How many inventories in a row did not name an active allocation. `reported`: its timeline has the note."""

    inventories: int
    reported: bool
    since: str


async def find_missed(reading: Reading, nodes: list[UUID], limit: int) -> list[UUID]:
    """Active allocations that a newer inventory of these nodes does not name."""
    return list((await reading.execute(_MISSED, {"nodes": nodes, "limit": limit})).scalars())


async def find_over(reading: Reading, nodes: list[UUID], limit: int) -> list[UUID]:
    """Absences that are over: the allocation is no longer active, or the inventory names it again."""
    page = _OVER.where(text("m.node_id = any(:nodes)")).order_by(_m.c.allocation_id).limit(limit)
    return list((await reading.execute(page, {"nodes": nodes})).scalars())


async def count_absence(tx: Transaction, allocation_id: UUID) -> Absence | None:
    """Count one more inventory without the allocation; None if it is named. The caller holds the locks of node and allocation."""
    row = (await tx.execute(_COUNT, {"id": allocation_id})).first()
    return None if row is None else Absence(row.inventories, row.reported, row.first_missed.isoformat())


async def is_over(reading: Reading, allocation_id: UUID) -> bool:
    """Whether this absence is over."""
    return (await reading.execute(_OVER.where(_m.c.allocation_id == allocation_id))).first() is not None


async def mark_reported(tx: Transaction, allocation_id: UUID) -> None:
    """Record that the timeline has the note."""
    await tx.execute(_REPORT, {"id": allocation_id})


async def forget_absence(tx: Transaction, allocation_id: UUID) -> bool:
    """Delete the absence; return whether it was reported."""
    row = (await tx.execute(_FORGET, {"id": allocation_id})).first()
    return row is not None and row.reported


async def count_reported(reading: Reading) -> int:
    """How many active allocations are reported as missing on their nodes."""
    found: int = (await reading.execute(_REPORTED)).scalar_one()
    return found


async def find_lost_in_restore(
    reading: Reading, nodes: list[UUID], limit: int, allocation_id: UUID | None = None
) -> list[UUID]:
    """Allocations that a restored database has as active, and the awaited inventory of their node does not name."""
    values = {"nodes": nodes, "limit": limit, "allocation_id": allocation_id}
    return list((await reading.execute(_LOST, values)).scalars())
