"""Truncation: dropping the log's oldest partition, and what still needs it (docs/reference/log-retention.md)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction

_TRUNCATE = "select outcome, first from log_truncate(:age_seconds, :versions_min)"
_EXTENT = """
select f.version as first, h.version as head, t.blocked_since, t.blocked_below
from log_first f cross join log_head h cross join log_truncation t
"""
_CURSORS = """
select kind, name, tenant_id, needs_from, since from log_cursors order by needs_from, kind, name, tenant_id limit :limit
"""


class Truncation(StrEnum):
    """The outcome of an attempt to truncate.

    `held` by a cursor; `busy`: a lock was not available; `elsewhere`: another process truncates; `storing`: operations store
    their versions first, and the next attempt continues.
    """

    DROPPED = "dropped"
    KEPT = "kept"
    HELD = "held"
    BUSY = "busy"
    ELSEWHERE = "elsewhere"
    STORING = "storing"


@dataclass(frozen=True, slots=True)
class LogCursor:
    """A policy, a consumer, its dead letters, a webhook or a subscription that needs the log from a version on.

    `since`: when it reached that version.
    """

    kind: str
    name: str
    tenant_id: UUID | None
    needs_from: int
    since: datetime


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The lowest and the newest version of the log.

    `blocked_since`: since then a partition that ends before `blocked_below` is due to be dropped but still needed.
    """

    first: int
    head: int
    blocked_since: datetime | None
    blocked_below: int | None


async def truncate(tx: Transaction, *, age_seconds: float, versions_min: int) -> Truncation:
    """Drop the oldest partition if it is due and not needed. The one statement of `tx`."""
    row = (await tx.execute(_TRUNCATE, {"age_seconds": age_seconds, "versions_min": versions_min})).one()
    return Truncation(row.outcome)


async def read_extent(reading: Reading) -> LogExtent:
    """Return the extent of the log."""
    return LogExtent(**(await reading.execute(_EXTENT)).one()._mapping)


async def read_cursors(reading: Reading, limit: int) -> list[LogCursor]:
    """Return up to `limit` cursors, the one that needs the oldest version first."""
    return [LogCursor(**row._mapping) for row in await reading.execute(_CURSORS, {"limit": limit})]
