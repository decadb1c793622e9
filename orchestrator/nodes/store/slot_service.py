"""The one door through which slots leave service and return: for a quarantine, an orphan, or drift of the topology."""

from __future__ import annotations

from uuid import UUID

from orchestrator.database.transactions import Transaction


async def keep_slots(tx: Transaction, node_id: UUID) -> None:
    """Slots with a quarantine, an orphan or a drift are out of service, others that were so for one of these serve again.

    The caller has locked the node.
    """
    await tx.execute("select keep_slots(:node_id)", {"node_id": node_id})
