"""Hands tasks to nodes: claim and flip in one statement, for all waiting nodes of a process at once (DESIGN §9)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from node_agent.protocol import Heartbeat
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
    where t.state = 'queued' and t.deploy_epoch is null and t.not_before <= clock_timestamp() and t.expires_at > clock_timestamp()
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
  and deploy_epoch is null
  and id <> all (cast(:known as uuid[]))
returning id, node_id, envelope, 0 as waited
"""


_QUEUED = """
select node_id from node_tasks where state = 'queued' and deploy_epoch is null group by node_id limit :nodes_max
"""


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


SANDBOX_DRIVERS = frozenset({"sandbox", "noop"})
"""Drivers that carry nothing out on a real GPU."""
RESERVED_DRIVERS = frozenset({"redfish"})
"""Of nodes without an agent; no agent may say that it is theirs."""
_HEARTBEAT = """
with before as (
    select n.id, n.online, n.underlay, n.identity_conflict_at is null as identified, p.driver as pool_driver,
           :allowed and coalesce(p.driver = :driver, true) as accepted
    from nodes n join pools p on p.id = n.pool_id where n.id = :node_id for no key update of n
)
update nodes n set driver = :driver, agent_version = :agent_version, agent_features = :features,
    key_set_serial = :key_set_serial, key_set_refusal = :key_set_refusal,
    agent_run = coalesce(cast(:agent_run as uuid), n.agent_run),
    underlay = case when b.accepted and b.identified then cast(:underlay as inet) else n.underlay end,
    last_seen_at = case when b.accepted then clock_timestamp() else n.last_seen_at end,
    online = b.accepted and b.identified and n.state <> 'retired',
    row_version = n.row_version + (n.online <> (b.accepted and b.identified and n.state <> 'retired'))::integer,
    held_allocations = case when b.accepted then cast(:allocations as jsonb) else n.held_allocations end
from before b where n.id = b.id
returning n.name, n.state, b.online, b.identified, n.pool_id, b.pool_driver, b.accepted, n.last_seen_at,
    n.underlay is distinct from b.underlay or (n.underlay is not null and n.online and not b.online) as has_moved,
    clock_timestamp() as now
"""
_SET_POOL_DRIVER = "update pools set driver = :driver where id = :pool_id and driver is null"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a heartbeat finds."""

    name: str
    state: str
    was_online: bool
    is_accepted: bool
    has_moved: bool
    """Whether the node has another underlay address than before, or none any more, or has it again after it was offline."""
    pool_driver: str | None
    last_seen_at: datetime | None
    now: datetime


async def note_heartbeat(tx: Transaction, node_id: UUID, heartbeat: Heartbeat, *, sandbox_allowed: bool) -> Seen:
    """Record the heartbeat, with the allocations and the key set that the node reports.

    The first driver for real GPUs in a pool is the pool's from then on. A node with a driver that is not allowed, not its
    pool's, or reserved, is not accepted: it is offline, and only its driver, version and key set are recorded. The underlay
    address of a node whose identity is in conflict is not recorded: two machines may report in turn.
    """
    is_real = heartbeat.driver not in SANDBOX_DRIVERS
    values = {
        "node_id": node_id, "agent_version": heartbeat.agent_version, "driver": heartbeat.driver,
        "allocations": json.dumps([str(allocation) for allocation in heartbeat.allocations]),
        "key_set_serial": heartbeat.key_set_serial, "key_set_refusal": heartbeat.key_set_refusal,
        "allowed": heartbeat.driver not in RESERVED_DRIVERS and (is_real or sandbox_allowed), "agent_run": heartbeat.agent_run,
        "features": heartbeat.features, "underlay": str(heartbeat.span.underlay) if heartbeat.span else None,
    }  # fmt: skip
    row = (await tx.execute(_HEARTBEAT, values)).one()
    if row.accepted and is_real and row.pool_driver is None:
        await tx.execute(_SET_POOL_DRIVER, {"driver": heartbeat.driver, "pool_id": row.pool_id})
    may_be_online = row.identified and row.state != "retired"
    was_online = row.online or (row.accepted and not may_be_online)
    return Seen(
        row.name, row.state, was_online, row.accepted, row.has_moved, row.pool_driver, row.last_seen_at, row.now
    )  # fmt: skip
