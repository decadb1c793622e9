"""Counts the rows that a piece of work reads, by PostgreSQL's own counters: of its indexes, and of whole tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from typing import Any, TypeVar

import psycopg

from orchestrator.database.calls import CallGroup
from orchestrator.database.transactions import Database

T = TypeVar("T")

# Partitions of the log count as the log. Entries of an index count even if the row turns out to be another's.
_READ = """
select case when starts_with(relname, 'log_from_') then 'log' else relname end, sum(read)::bigint from (
    select relname, seq_tup_read as read from pg_stat_user_tables
    union all select relname, idx_tup_read from pg_stat_user_indexes
) tables group by 1
"""
_FLUSH = "select pg_stat_force_next_flush()"


class Counted:
    """Work of the sessions of `database`, whose pools have a single connection each; `watcher` is another one."""

    def __init__(self, database: Database, watcher: psycopg.Connection[Any]) -> None:
        self._database = database
        self._watcher = watcher
        self.rows: Counter[str] = Counter()
        """Rows read of each table by what was counted last."""

    async def __call__(self, work: Awaitable[T]) -> T:
        """What the work answers."""
        before = await self._so_far()
        done = await work
        self.rows = await self._so_far()
        self.rows.subtract(before)
        return done

    async def _so_far(self) -> Counter[str]:
        # A session flushes its statistics once a second unless forced; these force it.
        self._watcher.execute(_FLUSH)
        async with self._database.read_one() as session:
            await session.execute(_FLUSH)
        for group in CallGroup:
            async with self._database.read_call(group) as call:
                await call.value(_FLUSH, {})
        return Counter(dict(self._watcher.execute(_READ).fetchall()))
