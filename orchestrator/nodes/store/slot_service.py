"""The one door through which slots leave service and return: for a quarantine, an orphan, drift, or an awaited inventory."""

from __future__ import annotations

from uuid import UUID

from orchestrator.database.transactions import Transaction


async def keep_slots(tx: Transaction, node_id: UUID) -> None:
    """Slots with a quarantine, an orphan or a drift are out of service, and all slots of a node whose inventory is awaited.

    Others that were so for one of these serve again.

    The caller has locked the node.
    """
    await tx.execute("select keep_slots_v2(:node_id)", {"node_id": node_id})
