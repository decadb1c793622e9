"""Ends the leases of VLANs that no network uses any more."""

from __future__ import annotations

from orchestrator.networks.store import vlans
from orchestrator.operations.execution import Context, transact


async def mark_left_vlans(context: Context, limit: int) -> int:
    """Begin the quarantine of at most `limit` VLANs of networks without a guest that nothing marked; return how many."""
    return await transact(context, lambda tx: vlans.mark_left(tx, limit))


async def free_left_vlans(context: Context, region: str, quarantine_seconds: float, limit: int) -> int:
    """End at most `limit` leases of the region whose quarantine is over; none while a node may carry one. Return how many."""
    return await transact(context, lambda tx: vlans.free_left(tx, region, quarantine_seconds, limit))
