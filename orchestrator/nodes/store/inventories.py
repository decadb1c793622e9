"""Compares what nodes report with what the database expects. Reads take no locks; the command that acts locks and re-checks.

Only positive evidence counts (TRAPS, failure 27): an inventory is complete, and was gathered after a moment of this
database's clock stored with it. A node that sent none is passed over; what it does not name proves nothing at once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from node_agent.protocol import HeldInventory
from orchestrator.database.transactions import Reading, Transaction

# A time that has not come yet, or an older one than is stored, is not taken: a late or lying report moves nothing back.
# Nor one from before the node was registered, which is not plausible: PostgreSQL can keep years that Python cannot read, and
# then one lying node would stop the reconciler for all (the year 1 in a zone east of Greenwich is 1 BC).
_KEEP = """
update nodes set inventory = cast(:held as jsonb), inventory_after = :after
where id = :node_id and :after between created_at and clock_timestamp()
  and (inventory_after is null or inventory_after < :after)
returning coalesce(old.inventory_after, created_at)
"""
_NODES = """
select id from nodes where id > :after and inventory_after is not null and state <> 'retired' order by id limit :limit
"""
ORPHANS_PER_NODE_MAX = 64
"""A node has at most 62 slots: a longer list is wrong, and the rest of it is not recorded (P13)."""

# Ended and proven before the node looked, or not this node's, or unknown: then nothing explains it. Nodes take turns, so
# that one which names much hides no other.
_UNEXPLAINED = """
select n.id as node_id, h.allocation_id, h.slots, h.fence, n.inventory_after, o.id as orphan_id,
       a.state as allocation_state, a.node_id = n.id as was_here,
       coalesce(c.inherited_fence, c.fence) as claim_fence
from nodes n
cross join lateral jsonb_to_recordset(n.inventory) as h(allocation_id uuid, slots jsonb, fence bigint)
left join allocations a on a.id = h.allocation_id
left join claims c on c.id = a.claim_id
left join node_orphans o on o.node_id = n.id and o.allocation_id = h.allocation_id and o.state <> 'destroyed'
where n.id = any(:nodes) and (a.id is null or a.node_id <> n.id or c.closed_at < n.inventory_after)
  and (o.id is not null or :orphans_max > (select count(*) from node_orphans k where k.node_id = n.id and k.state <> 'destroyed'))
  and (o.id is null or o.last_seen_at < n.inventory_after - make_interval(secs => :refresh_seconds))
  and not exists (select from node_orphans d where d.node_id = n.id and d.allocation_id = h.allocation_id
                  and d.state = 'destroyed' and d.destroyed_at >= n.inventory_after)
  and (cast(:allocation_id as uuid) is null or h.allocation_id = :allocation_id)
order by row_number() over (partition by n.id order by h.allocation_id), n.id limit :limit
"""


@dataclass(frozen=True, slots=True)
class Unexplained:
    """Something on a node that nothing explains. `orphan_id`: it is recorded already, and was seen again.

    `allocation_state` is that of the allocation of this id, None if there is none; `was_here`: it was this node's.
    """

    node_id: UUID
    allocation_id: UUID
    slots: list[int]
    fence: int | None
    inventory_after: datetime
    orphan_id: UUID | None
    allocation_state: str | None
    was_here: bool | None
    claim_fence: int | None


async def keep_inventory(tx: Transaction, node_id: UUID, inventory: HeldInventory) -> datetime | None:
    """Remember a complete inventory; return the time after which the one before was gathered. None: a newer one is known."""
    held = json.dumps([one.model_dump(mode="json") for one in inventory.allocations])
    values = {"node_id": node_id, "held": held, "after": inventory.gathered_after}
    before: datetime | None = (await tx.execute(_KEEP, values)).scalar()
    return before


async def nodes_with_inventory(reading: Reading, after: UUID, limit: int) -> list[UUID]:
    """At most `limit` nodes with ids after `after`, by id, that ever sent a complete inventory."""
    return list((await reading.execute(_NODES, {"after": after, "limit": limit})).scalars())


async def find_unexplained(
    reading: Reading, nodes: list[UUID], *, refresh_seconds: float, limit: int, allocation_id: UUID | None = None
) -> list[Unexplained]:
    """What these nodes hold that nothing explains; what is recorded already, only if it was not seen for a while."""
    values = {"nodes": nodes, "refresh_seconds": refresh_seconds, "limit": limit, "allocation_id": allocation_id}
    values["orphans_max"] = ORPHANS_PER_NODE_MAX
    return [Unexplained(**row._mapping) for row in await reading.execute(_UNEXPLAINED, values)]


# Gathered since processes serve again: before that no agent could learn a time to name.
_ARRIVED = """
select w.node_id from awaited_inventories w join restores r on r.epoch = w.epoch join nodes n on n.id = w.node_id
where n.inventory_after > r.closed_at order by n.inventory_after limit :limit
"""
_HAS_ARRIVED = """
select from awaited_inventories w join restores r on r.epoch = w.epoch join nodes n on n.id = w.node_id
where w.node_id = :node_id and n.inventory_after > r.closed_at
"""
# An inventory shows whether a guest is there only once its allocation is active. What waits for units has no task.
_IS_STARTING = """
select from awaited_inventories w join restores r on r.epoch = w.epoch join nodes n on n.id = w.node_id
join allocations a on a.node_id = n.id
where w.node_id = :node_id and a.requested_at < r.closed_at and (
    a.state = 'provisioning' or a.state = 'requested' and a.waits_for <> 'units'
    or a.state = 'active' and a.active_at >= n.inventory_after)
"""
_FORGET = "delete from awaited_inventories where node_id = :node_id"
_IS_AWAITED = "select exists (select from awaited_inventories where node_id = :node_id)"
_COUNT = "select count(*) from awaited_inventories w join nodes n on n.id = w.node_id where n.state <> 'retired'"


async def find_arrived(reading: Reading, limit: int) -> list[UUID]:
    """At most `limit` nodes whose awaited inventory is here."""
    return list((await reading.execute(_ARRIVED, {"limit": limit})).scalars())


async def has_arrived(reading: Reading, node_id: UUID) -> bool:
    """Whether the inventory of the node is awaited and here."""
    return (await reading.execute(_HAS_ARRIVED, {"node_id": node_id})).first() is not None


async def is_starting(tx: Transaction, node_id: UUID) -> bool:
    """Whether something of before the restore is being started on the awaited node, or began after its inventory."""
    return (await tx.execute(_IS_STARTING, {"node_id": node_id})).first() is not None


async def forget_awaited(tx: Transaction, node_id: UUID) -> None:
    """Await no inventory of the node any more; the caller holds its lock."""
    await tx.execute(_FORGET, {"node_id": node_id})


async def is_awaited(tx: Transaction, node_id: UUID) -> bool:
    """Whether what runs on the locked node is unknown since a restore."""
    return bool((await tx.execute(_IS_AWAITED, {"node_id": node_id})).scalar_one())


async def count_awaited(reading: Reading) -> int:
    """How many nodes are awaited; a retired one sends no inventory."""
    found: int = (await reading.execute(_COUNT)).scalar_one()
    return found
