"""Consumers that keep their position in Postgres."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.store import consumer_positions
from orchestrator.store.consumer_positions import LogConsumer
from orchestrator.store.database import Database


async def list_consumers(database: Database) -> Sequence[LogConsumer]:
    """All of them, who is the furthest behind first."""
    async with database.glance() as reading:
        return await consumer_positions.list_consumers(reading)
