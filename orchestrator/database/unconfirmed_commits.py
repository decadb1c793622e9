"""Refuses a primary that may show commits which no standby has, until a standby has them.

Commits that wait for a standby are invisible. A primary that crashes and starts again shows them, and so does a standby that is
promoted: a repetition of their idempotency key would be answered with success, and the loss of that primary would lose them. The
log is replicated in its order, so one commit that a standby confirms says the same of every commit before it. Each process
commits such a barrier once for each start of a server, over its first connection to it as the primary.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row

PAUSE_SECONDS: Final = 0.05
"""Before the barrier is tried again while another session's waits."""
START = b"""
    select pg_postmaster_start_time(), stats_reset, current_setting('synchronous_standby_names') <> '' and not pg_is_in_recovery()
      from pg_stat_checkpointer
"""
"""When the server started, and when it last recovered from a crash: it forgets its statistics then, and keeps the first."""
# One of all processes at a time: PostgreSQL keeps the session of a barrier that waits for a standby, also without its client.
BARRIER = b"""
    select case when pg_try_advisory_xact_lock(hashtext('berth.barrier'))
                then pg_logical_emit_message(true, 'berth', '')::text end
"""
_confirmed: set[tuple[Any, ...]] = set()
"""Starts of servers whose commits before them a standby has."""


class NoStandbyConfirms(psycopg.OperationalError):
    """The primary may show commits that no standby has, and none confirms them now. Nothing was done."""


async def require_confirmed(connection: psycopg.AsyncConnection[Any], seconds_max: float) -> None:
    """Raise `NoStandbyConfirms` unless a standby has what this server shows, or none need have it.

    For a new connection in autocommit mode; waits at most `seconds_max`.
    """
    cursor = await psycopg.AsyncCursor(connection, row_factory=tuple_row).execute(START)
    row = await cursor.fetchone()
    assert row is not None
    *start, waits_for_standbys = row
    if not waits_for_standbys:
        return
    deadline = time.monotonic() + seconds_max
    while tuple(start) not in _confirmed:
        if not await _is_committed(connection, deadline):
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        _confirmed.add(tuple(start))


async def _is_committed(connection: psycopg.AsyncConnection[Any], deadline: float) -> bool:
    """Whether the barrier was committed; False: another session's waits. Raises `NoStandbyConfirms` after `deadline`."""
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            cursor = await psycopg.AsyncCursor(connection, row_factory=tuple_row).execute(BARRIER)
            row = await cursor.fetchone()
    except (TimeoutError, psycopg.OperationalError) as error:
        raise NoStandbyConfirms(
            "no standby has confirmed what this primary shows since its start; retry with the same key when one is back"
        ) from error
    return row is not None and row[0] is not None
