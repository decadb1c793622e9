"""Starts what waits for units of a node that are free by now: the net below the transaction that proves them free."""

from __future__ import annotations

from uuid import UUID

from orchestrator.execution import Context, transact
from orchestrator.store import claims
from orchestrator.store.database import Transaction
from orchestrator.store.nodes import lock_node


async def start_waiting(context: Context, node_id: UUID) -> int:
    """How many allocations were started. Raises `NotFound` if there is no such node."""

    async def work(tx: Transaction) -> int:
        await lock_node(tx, node_id)
        return await claims.start_waiting(tx, node_id, context.limits.requested_seconds_max)

    return await transact(context, work)
