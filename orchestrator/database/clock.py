"""The database's clock, the only one that judges anything (P5; TRAPS: `now()` is the start of the transaction)."""

from __future__ import annotations

from datetime import datetime

from orchestrator.database.transactions import Reading


async def read_clock(reading: Reading) -> datetime:
    """The time now, also inside a transaction that has waited."""
    now: datetime = (await reading.execute("select clock_timestamp()")).scalar_one()
    return now
