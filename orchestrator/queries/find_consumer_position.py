"""How far a consumer of the log is done."""

from __future__ import annotations

from orchestrator.execution import Context
from orchestrator.store.consumer_positions import read_position


async def find_consumer_position(context: Context, consumer: str) -> int:
    """The last version that is done; 0 if it never said."""
    async with context.database.reading() as reading:
        return await read_position(reading, consumer)
