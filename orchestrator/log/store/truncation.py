"""Dropping the log's oldest partition, and who keeps it from being dropped (docs/reference/log-retention.md)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction

_TRUNCATE = "select outcome, first from log_truncate(:age_seconds, :versions_min)"
_STANDING = """
select f.version as first, h.version as head, t.blocked_since, t.blocked_below
from log_first f cross join log_head h cross join log_truncation t
"""
_CURSORS = """
select kind, name, tenant_id, needs_from, since from log_cursors order by needs_from, kind, name, tenant_id limit :limit
"""
_REGISTER = """
insert into consumer_positions (consumer, version)
select :consumer, f.version - 1 from log_first f for no key update on conflict do nothing
"""


class Truncation(StrEnum):
    """What became of a look at the log's beginning."""

    DROPPED = "dropped"
    KEPT = "kept"
    HELD = "held"
    BUSY = "busy"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class LogCursor:
    """Who needs the log from which version on: a policy (of a tenant, or of the operators), a consumer, or dead letters of
    one. `since`: when it came to that version.
    """

    kind: str
    name: str
    tenant_id: UUID | None
    needs_from: int
    since: datetime


@dataclass(frozen=True, slots=True)
class LogStanding:
    """The lowest and the newest version kept. `blocked_since`: a partition that ends before `blocked_below` is old enough
    to be dropped since then, and somebody needs it.
    """

    first: int
    head: int
    blocked_since: datetime | None
    blocked_below: int | None


async def truncate(tx: Transaction, *, age_seconds: float, versions_min: int) -> Truncation:
    """Drop the oldest partition if it is due and nobody needs it. The one statement of `tx`."""
    row = (await tx.execute(_TRUNCATE, {"age_seconds": age_seconds, "versions_min": versions_min})).one()
    return Truncation(row.outcome)


async def register_consumer(tx: Transaction, consumer: str) -> None:
    """From the commit on nothing is dropped that the consumer has not done. One that is known is left as it is."""
    await tx.execute(_REGISTER, {"consumer": consumer})


async def read_standing(reading: Reading) -> LogStanding:
    """Where the log begins and ends."""
    return LogStanding(**(await reading.execute(_STANDING)).one()._mapping)


async def read_cursors(reading: Reading, limit: int) -> list[LogCursor]:
    """Up to `limit` of those who need the log, who needs the oldest version first."""
    return [LogCursor(**row._mapping) for row in await reading.execute(_CURSORS, {"limit": limit})]
