"""Keep the counts of `live_rows` short: what sessions that are gone have counted is added up (P13)."""

from __future__ import annotations

from orchestrator.database import table_bounds as room
from orchestrator.operations.execution import Context, transact


async def gather_counts(context: Context) -> int:
    """Add up what sessions that are gone have counted; how many stripes there were. The sums stay as they are."""
    return await transact(context, room.gather_counts)
