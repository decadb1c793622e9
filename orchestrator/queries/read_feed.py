"""The log for its subscribers: what follows a version, and whether it is all there."""

from __future__ import annotations

from uuid import UUID

from orchestrator.store.database import Database
from orchestrator.store.feed_rows import Filter, Scan, find_truncation, read_events

EVENTS_MAX = 1_000
BYTES_MAX = 1024 * 1024
SCANNED_MAX = 20_000
"""Versions that one look for few of them may pass over."""


async def read_feed(database: Database, after: int, head: int, tenant_id: UUID | None, chosen: Filter) -> Scan:
    """What follows `after`, bounded; look again behind `scanned_to` for the rest."""
    until = head if chosen.takes_all else min(head, after + SCANNED_MAX)
    async with database.glance() as reading:
        return await read_events(
            reading, after, until, tenant_id=tenant_id, chosen=chosen, limit=EVENTS_MAX, bytes_max=BYTES_MAX
        )


async def find_kept(database: Database, after: int, tenant_id: UUID | None) -> tuple[int, bool]:
    """The lowest version kept, and whether a subscriber that has seen up to `after` would miss some of its events."""
    async with database.glance() as reading:
        return await find_truncation(reading, after, tenant_id)
