"""Hands tasks to nodes: claim and flip in one statement, for all waiting nodes of a process at once (DESIGN §9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A task on its way to a node."""

    task_id: UUID
    node_id: UUID
    envelope: dict[str, Any]
    waited_seconds: float


# The node's row and its certificate's are looked at in the same statement, so a node revoked or enrolled anew a moment
# ago gets nothing. The SELECT is in a CTE: without one, LIMIT with SKIP LOCKED can take more rows than it says.
_CLAIM = """
with waiting as (
    select unnest(cast(:nodes as uuid[])) as node_id, unnest(cast(:serials as text[])) as serial
), picked as (
    select t.id from node_tasks t
    join waiting w on w.node_id = t.node_id
    join nodes n on n.id = t.node_id and n.epoch = t.node_epoch and n.state <> 'retired'
        and n.identity_conflict_at is null
    join node_certificates c on c.serial = w.serial and c.node_id = n.id and c.revoked_at is null and c.node_epoch = n.epoch
    where t.state = 'queued' and t.not_before <= clock_timestamp() and t.expires_at > clock_timestamp()
    order by t.queued_at, t.id
    limit :batch
    for update of t skip locked
)
update node_tasks t
set state = 'dispatched', dispatched_at = clock_timestamp(), dispatch_count = t.dispatch_count + 1
from picked p where t.id = p.id
returning t.id, t.node_id, t.envelope, extract(epoch from t.dispatched_at - t.queued_at) as waited
"""

_AGAIN = """
update node_tasks set dispatch_count = dispatch_count + 1
where node_id = :node_id and state = 'dispatched' and node_epoch = :epoch and expires_at > clock_timestamp()
  and id <> all (cast(:known as uuid[]))
returning id, node_id, envelope, 0 as waited
"""


_QUEUED = "select node_id from node_tasks where state = 'queued' group by node_id limit :nodes_max"


async def nodes_with_queued_tasks(reading: Reading, *, nodes_max: int) -> set[UUID]:
    """Nodes for which something is queued, at most `nodes_max` of them: one scan of an index that is nearly empty."""
    return set((await reading.execute(_QUEUED, {"nodes_max": nodes_max})).scalars())


async def lease_queued_tasks(
    tx: Transaction, waiting: Sequence[tuple[UUID, str]], *, batch_max: int
) -> list[Dispatched]:
    """Flip up to `batch_max` queued tasks of the waiting (node, certificate serial) pairs to dispatched, oldest first."""
    parameters = {
        "nodes": [node for node, _ in waiting],
        "serials": [serial for _, serial in waiting],
        "batch": batch_max,
    }
    return [_dispatched(row) for row in await tx.execute(_CLAIM, parameters)]


async def hand_out_again(tx: Transaction, node_id: UUID, epoch: int, known: Sequence[UUID]) -> list[Dispatched]:
    """Dispatched, unfinished tasks that the agent did not say it has: same envelopes again, so a lost answer loses nothing."""
    parameters = {"node_id": node_id, "epoch": epoch, "known": list(known)}
    return [_dispatched(row) for row in await tx.execute(_AGAIN, parameters)]


def _dispatched(row: Any) -> Dispatched:
    return Dispatched(row.id, row.node_id, row.envelope, float(row.waited))


_HEARTBEAT = """
with before as (
    select id, online, state <> 'retired' and identity_conflict_at is null as serves
    from nodes where id = :node_id for no key update
)
update nodes n set last_seen_at = clock_timestamp(), online = b.serves, agent_version = :agent_version,
    row_version = n.row_version + (not b.online and b.serves)::integer,
    held_allocations = cast(:allocations as jsonb)
from before b where n.id = b.id
returning n.name, n.state, b.online or not b.serves as was_online, clock_timestamp() as now
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a heartbeat finds."""

    name: str
    state: str
    was_online: bool
    now: datetime


async def note_heartbeat(tx: Transaction, node_id: UUID, agent_version: str, allocations_json: str) -> Seen:
    """Record the heartbeat and the inventory as the node reports it."""
    row = (
        await tx.execute(
            _HEARTBEAT, {"node_id": node_id, "agent_version": agent_version, "allocations": allocations_json}
        )
    ).one()
    return Seen(row.name, row.state, row.was_online, row.now)
