"""The orphans of a node, for operators."""

from __future__ import annotations

from uuid import UUID

from orchestrator.store import nodes
from orchestrator.store.database import Database
from orchestrator.store.orphans import Orphan, list_orphans


async def list_orphans_of_node(
    database: Database, node_id: UUID, *, every: bool, after: UUID, limit: int
) -> list[Orphan]:
    """Up to `limit` orphans of the node, the oldest first; with `every`, also those destroyed. Raises `NotFound`."""
    async with database.reading() as reading:
        await nodes.read_node(reading, node_id)
        return await list_orphans(reading, node_id, every=every, after=after, limit=limit)
