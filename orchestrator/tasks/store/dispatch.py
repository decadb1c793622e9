"""Hands tasks to nodes: claim and flip in one statement, for all waiting nodes of a process at once (DESIGN §9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.database.calls import FunctionCall
from orchestrator.database.transactions import Transaction


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A task on its way to a node."""

    task_id: UUID
    node_id: UUID
    envelope: JsonObject
    waited_seconds: float


# The node's row and its certificate's are looked at in the same statement, so a node revoked or enrolled anew a moment
# ago gets nothing. The SELECT is in a CTE: without one, LIMIT with SKIP LOCKED can take more rows than it says.
_CLAIM = """
with waiting as (
    select unnest(%(nodes)s::uuid[]) as node_id, unnest(%(serials)s::text[]) as serial
), picked as (
    select t.id from node_tasks t
    join waiting w on w.node_id = t.node_id
    join nodes n on n.id = t.node_id and n.epoch = t.node_epoch and n.state <> 'retired'
        and n.identity_conflict_at is null
    join node_certificates c on c.serial = w.serial and c.node_id = n.id and c.revoked_at is null and c.node_epoch = n.epoch
    where t.state = 'queued' and t.deploy_epoch is null and t.not_before <= clock_timestamp() and t.expires_at > clock_timestamp()
    order by t.queued_at, t.id
    limit %(batch)s
    for update of t skip locked
), leased as (
    update node_tasks t
    set state = 'dispatched', dispatched_at = clock_timestamp(), dispatch_count = t.dispatch_count + 1
    from picked p where t.id = p.id
    returning t.id, t.node_id, t.envelope, extract(epoch from t.dispatched_at - t.queued_at) as waited
)
select coalesce(jsonb_agg(jsonb_build_array(id, node_id, envelope, waited)), '[]') from leased
"""

_AGAIN = """
update node_tasks set dispatch_count = dispatch_count + 1
where node_id = :node_id and state = 'dispatched' and node_epoch = :epoch and expires_at > clock_timestamp()
  and deploy_epoch is null
  and id <> all (cast(:known as uuid[]))
returning id, node_id, envelope, 0 as waited
"""


_QUEUED = """
select coalesce(jsonb_agg(node_id), '[]') from (
    select node_id from node_tasks where state = 'queued' and deploy_epoch is null group by node_id limit %(nodes_max)s
) queued
"""


async def nodes_with_queued_tasks(call: FunctionCall, *, nodes_max: int) -> list[UUID]:
    """Nodes for which something is queued, at most `nodes_max` of them: one scan of an index that is nearly empty."""
    return [UUID(node) for node in await call.value(_QUEUED, {"nodes_max": nodes_max})]


async def lease_queued_tasks(call: FunctionCall, waiting: Mapping[UUID, str], *, batch_max: int) -> list[Dispatched]:
    """Flip up to `batch_max` queued tasks of the waiting nodes, by their certificates' serials, to dispatched, oldest first."""
    parameters = {"nodes": list(waiting), "serials": list(waiting.values()), "batch": batch_max}
    return [
        Dispatched(UUID(task), UUID(node), envelope, float(waited))
        for task, node, envelope, waited in await call.value(_CLAIM, parameters)
    ]


async def hand_out_again(tx: Transaction, node_id: UUID, epoch: int, known: Sequence[UUID]) -> list[Dispatched]:
    """Dispatched, unfinished tasks that the agent did not say it has: same envelopes again, so a lost answer loses nothing."""
    parameters = {"node_id": node_id, "epoch": epoch, "known": list(known)}
    return [_dispatched(row) for row in await tx.execute(_AGAIN, parameters)]


def _dispatched(row: Any) -> Dispatched:
    return Dispatched(row.id, row.node_id, row.envelope, float(row.waited))
