"""Return the slots of a node to service once its inventory after a restore is explained (P1)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.allocations.store.absences import find_lost_in_restore
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.nodes.store import nodes
from orchestrator.nodes.store.inventories import find_unexplained, forget_awaited, has_arrived, is_starting
from orchestrator.nodes.store.slot_service import keep_slots
from orchestrator.operations.execution import Context, transact
from orchestrator.tenants.principals import Actor, ActorKind

RECONCILER = Actor(ActorKind.WORKER, "reconciler")
NEVER_SECONDS = 1e9
"""What is recorded already is left out however long ago it was seen."""


async def open_restored_node(context: Context, node_id: UUID) -> bool:
    """Return whether slots of the node serve again: those on which its inventory names nothing that is unknown here.

    Evaluated after the node's lock: its inventory was gathered since the restore was closed, and everything unknown in it is
    recorded as an orphan, which keeps its slots, what is active without being named is being released, and nothing that was
    requested before is still being started.
    """

    async def work(tx: Transaction) -> bool:
        await nodes.lock_node(tx, node_id)
        if not await has_arrived(tx, node_id) or await is_starting(tx, node_id):
            return False
        if await find_unexplained(tx, [node_id], refresh_seconds=NEVER_SECONDS, limit=1):
            return False
        if await find_lost_in_restore(tx, [node_id], 1):
            return False
        await forget_awaited(tx, node_id)
        await keep_slots(tx, node_id)
        await audit.record(tx, RECONCILER, "node.restored", f"nodes/{node_id}", {}, None)
        return True

    return await transact(context, work)
