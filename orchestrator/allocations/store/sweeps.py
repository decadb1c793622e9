"""What the sweepers look for: bounded, earliest first, without locks. What is found is locked and looked at again."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from orchestrator.allocations.states import AllocationState
from orchestrator.database.transactions import Reading, Transaction


@dataclass(frozen=True, slots=True)
class Overdue:
    """An allocation whose wait has passed its deadline."""

    allocation_id: UUID
    state: AllocationState


# OFFSET keeps the planner from turning a question about a few claims into a join with all allocations there ever were.
_OVERDUE = """
(select a.id, a.state, a.waits_until as due from allocations a
 where a.waits_until < (select clock_timestamp() - make_interval(secs => :grace_seconds)) order by a.waits_until limit :limit)
union all
(select a.id, a.state, c.waits_until from claims c
 cross join lateral (select id, state from allocations where id = c.owner_id and state = 'failed' offset 0) a
 where c.waits_until < (select clock_timestamp() - make_interval(secs => :grace_seconds)) order by c.waits_until limit :limit)
order by due limit :limit
"""
_SILENT = """
select id from nodes
where online and last_seen_at < clock_timestamp() - make_interval(secs => :silent_seconds)
order by last_seen_at limit :limit
"""
_LOCK_NODE = "select id from nodes where id = :id for no key update"
_MARK_OFFLINE = """
update nodes set online = false, row_version = row_version + 1
where id = :id and online and last_seen_at < clock_timestamp() - make_interval(secs => :silent_seconds)
returning name, last_seen_at
"""
# An array leaves the planner nothing to join: a few are looked up, however many it takes them for.
_RETIRE_OPERATIONS = """
with picked as (
    select ctid from operations where retire_after < (select clock_timestamp())
    order by retire_after limit :limit for update skip locked
), gone as (
    delete from operations where ctid = any (array(select ctid from picked)) returning 1
)
select count(*) from gone
"""


async def find_overdue(reading: Reading, grace_seconds: float, limit: int) -> list[Overdue]:
    """Allocations that have waited longer than their deadline and `grace_seconds` more."""
    rows = await reading.execute(_OVERDUE, {"grace_seconds": grace_seconds, "limit": limit})
    return [Overdue(row.id, AllocationState(row.state)) for row in rows]


async def find_silent_nodes(reading: Reading, silent_seconds: float, limit: int) -> list[UUID]:
    """Nodes marked online that have not been heard of for `silent_seconds`."""
    rows = await reading.execute(_SILENT, {"silent_seconds": silent_seconds, "limit": limit})
    return [row.id for row in rows]


async def mark_offline_if_silent(tx: Transaction, node_id: UUID, silent_seconds: float) -> dict[str, object] | None:
    """Mark the node offline, judged after its lock; its name and when it was heard last, or None if it is well."""
    await tx.execute(_LOCK_NODE, {"id": node_id})
    row = (await tx.execute(_MARK_OFFLINE, {"id": node_id, "silent_seconds": silent_seconds})).first()
    return None if row is None else {"name": row.name, "last_seen_at": row.last_seen_at}


async def delete_retired_operations(tx: Transaction, limit: int) -> int:
    """Forget at most `limit` answers whose time is over, the oldest first; how many there were."""
    count: int = (await tx.execute(_RETIRE_OPERATIONS, {"limit": limit})).scalar_one()
    return count
