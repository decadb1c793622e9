"""Reads tasks of maintenance windows, outside commands."""

from __future__ import annotations

from uuid import UUID

from orchestrator.nodes.store import maintenance_tasks
from orchestrator.operations.execution import Context


async def find_open_tasks(context: Context, limit: int) -> list[tuple[UUID, UUID]]:
    """At most `limit` windows and nodes whose task can begin, is over, or does not run any more."""
    async with context.database.reading() as reading:
        return await maintenance_tasks.find_open(reading, limit)
