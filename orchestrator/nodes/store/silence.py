"""SQL for nodes without a heartbeat: found without locks, marked offline under the node's lock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction

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


@dataclass(frozen=True, slots=True)
class SilentNode:
    """A node that was marked offline, and the time of its last heartbeat."""

    name: str
    last_seen_at: datetime


async def find_silent_nodes(reading: Reading, silent_seconds: float, limit: int) -> list[UUID]:
    """Nodes marked online without a heartbeat for `silent_seconds`."""
    rows = await reading.execute(_SILENT, {"silent_seconds": silent_seconds, "limit": limit})
    return [row.id for row in rows]


async def mark_offline_if_silent(tx: Transaction, node_id: UUID, silent_seconds: float) -> SilentNode | None:
    """Mark the node offline, evaluated after its lock; None if a heartbeat has arrived since."""
    await tx.execute(_LOCK_NODE, {"id": node_id})
    row = (await tx.execute(_MARK_OFFLINE, {"id": node_id, "silent_seconds": silent_seconds})).first()
    return None if row is None else SilentNode(row.name, row.last_seen_at)
