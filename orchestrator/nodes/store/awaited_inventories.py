"""SQL for nodes whose slots stay out of service until they have said, after a restore, what they hold."""

from __future__ import annotations

from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction

# Gathered since processes serve again: before that no agent could learn a time to name.
_ARRIVED = """
select w.node_id from awaited_inventories w join restores r on r.epoch = w.epoch join nodes n on n.id = w.node_id
where n.inventory_after > r.closed_at order by n.inventory_after limit :limit
"""
_HAS_ARRIVED = """
select from awaited_inventories w join restores r on r.epoch = w.epoch join nodes n on n.id = w.node_id
where w.node_id = :node_id and n.inventory_after > r.closed_at
"""
_FORGET = "delete from awaited_inventories where node_id = :node_id"
_COUNT = "select count(*) from awaited_inventories"


async def find_arrived(reading: Reading, limit: int) -> list[UUID]:
    """At most `limit` nodes whose awaited inventory is here."""
    return list((await reading.execute(_ARRIVED, {"limit": limit})).scalars())


async def has_arrived(reading: Reading, node_id: UUID) -> bool:
    """Whether the inventory of the node is awaited and here."""
    return (await reading.execute(_HAS_ARRIVED, {"node_id": node_id})).first() is not None


async def forget_awaited(tx: Transaction, node_id: UUID) -> None:
    """Await no inventory of the node any more; the caller holds its lock."""
    await tx.execute(_FORGET, {"node_id": node_id})


async def count_awaited(reading: Reading) -> int:
    """How many nodes are awaited."""
    found: int = (await reading.execute(_COUNT)).scalar_one()
    return found
