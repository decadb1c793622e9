"""Sessions of PostgreSQL that wait for a lock."""

from __future__ import annotations

import asyncio

from tests.lifecycle.driving import rows_of


async def until_waiting(url: str) -> None:
    """Until some session waits for a lock."""
    async with asyncio.timeout(60):
        while not rows_of(url, "select from pg_stat_activity where wait_event_type = 'Lock'"):
            await asyncio.sleep(0.01)
