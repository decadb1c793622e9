"""Reads burn-ins, outside commands."""

from __future__ import annotations

from uuid import UUID

from orchestrator.database.transactions import Database
from orchestrator.nodes.store import burn_ins, nodes
from orchestrator.nodes.store.burn_ins import BurnIn
from orchestrator.operations.execution import Context


async def list_burn_ins(database: Database, node_id: UUID, *, before: UUID | None, limit: int) -> list[BurnIn]:
    """Up to `limit` burn-ins of the node before this one, the newest first. Raises `NotFound`."""
    async with database.reading() as reading:
        await nodes.read_node(reading, node_id)
        return await burn_ins.list_burn_ins(reading, node_id, before=before, limit=limit)


async def find_open_burn_ins(context: Context, limit: int) -> list[UUID]:
    """At most `limit` nodes with an open burn-in that can be issued or concluded."""
    async with context.database.reading() as reading:
        return await burn_ins.find_open(reading, limit)
