"""How far metering is behind the log."""

from __future__ import annotations

from orchestrator.execution import Context
from orchestrator.store.metering import Lag, read_lag, read_trusted_head


async def find_metering_lag(context: Context) -> Lag:
    """In versions, and in seconds."""
    async with context.database.glance() as reading:
        return await read_lag(reading)


async def find_trusted_head(context: Context) -> int | None:
    """The newest version; None while versions may still change, because nobody has accepted this Postgres yet."""
    async with context.database.glance() as reading:
        return await read_trusted_head(reading)
