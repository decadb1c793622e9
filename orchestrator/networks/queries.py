"""Reads leases of VLANs for the worker's sweepers."""

from __future__ import annotations

from orchestrator.networks.store import vlans
from orchestrator.operations.execution import Context


async def find_regions_with_left_vlans(context: Context, quarantine_seconds: float) -> list[str]:
    """Regions that have VLANs whose quarantine is over, by name."""
    async with context.database.reading() as reading:
        return await vlans.find_regions_over(reading, quarantine_seconds)
