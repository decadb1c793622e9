"""Sessions of PostgreSQL that hold a key or wait for a lock."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg

from tests.allocations.driving import rows_of
from tests.support.waiting import async_wait_for

TAKE_KEY = """
insert into operations (scope, key, fingerprint, retire_after)
values (%s, %s, decode(repeat('00', 32), 'hex'), clock_timestamp() + interval '1 hour')
"""


def take_key(rival: psycopg.Connection[Any], tenant_id: UUID, key: str) -> None:
    """Another transaction has inserted the key and does not end."""
    rival.execute("begin")
    rival.execute(TAKE_KEY, (tenant_id, key))


async def until_waiting(url: str, sessions: int = 1) -> None:
    """Return when at least so many sessions wait for a lock."""
    waiting = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    await async_wait_for(lambda: len(rows_of(url, waiting)) >= sessions, f"{sessions} sessions to wait for a lock")
