"""What lives now, in numbers."""

from __future__ import annotations

from orchestrator.store.census import Census, read_census
from orchestrator.store.database import Database


async def take_census(database: Database) -> Census:
    """Allocations, nodes and GPUs by state."""
    async with database.reading() as reading:
        return await read_census(reading)
