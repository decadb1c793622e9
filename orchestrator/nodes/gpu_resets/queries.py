"""Reads resets of GPUs, outside commands."""

from __future__ import annotations

from uuid import UUID

from orchestrator.database.transactions import Database
from orchestrator.nodes.store import gpu_resets, nodes
from orchestrator.nodes.store.gpu_resets import GpuReset
from orchestrator.operations.execution import Context


async def list_gpu_resets(database: Database, node_id: UUID, *, before: UUID | None, limit: int) -> list[GpuReset]:
    """Up to `limit` resets of the node before this one, the newest first. Raises `NotFound`."""
    async with database.reading() as reading:
        await nodes.read_node(reading, node_id)
        return await gpu_resets.list_gpu_resets(reading, node_id, before=before, limit=limit)


async def find_open_gpu_resets(context: Context, limit: int) -> list[UUID]:
    """At most `limit` nodes with an open reset that can be issued or concluded."""
    async with context.database.reading() as reading:
        return await gpu_resets.find_open(reading, limit)
