"""Log offsets of consumers: they delay truncation, and a rebuilt stream does not replay what is processed (DESIGN §7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.problems import InvalidState, NotFound

_SAVE = """
insert into consumer_positions (consumer, version) values (:consumer, :version)
on conflict (consumer) do update set version = excluded.version, updated_at = clock_timestamp()
where consumer_positions.version < excluded.version
"""
_REGISTER = """
insert into consumer_positions (consumer, version)
select :consumer, f.version - 1 from log_first f for no key update on conflict do nothing
"""
_LIST = """
select consumer, version, updated_at from consumer_positions where consumer > :after order by consumer limit :limit
"""
_DELETE = "delete from consumer_positions where consumer = :consumer returning consumer, version, updated_at"
OWN = frozenset({"berth-relay", "metering"})
"""Berth's own consumers, registered from the start: without them unprocessed events would be lost with the log."""
_READ = "select version from consumer_positions where consumer = :consumer"


@dataclass(frozen=True, slots=True)
class LogConsumer:
    """A consumer has processed everything up to `version`, since `updated_at`."""

    consumer: str
    version: int
    updated_at: datetime


async def register_consumer(tx: Transaction, consumer: str) -> None:
    """Register a consumer at the beginning of the log; a registered one keeps its offset."""
    await tx.execute(_REGISTER, {"consumer": consumer})


async def raise_position(tx: Transaction, consumer: str, version: int) -> None:
    """Store that everything up to `version` is processed; an offset never goes back."""
    await tx.execute(_SAVE, {"consumer": consumer, "version": version})


async def read_position(reading: Reading, consumer: str) -> int:
    """Return the last processed version; 0 for an unknown consumer."""
    version: int | None = (await reading.execute(_READ, {"consumer": consumer})).scalar_one_or_none()
    return version or 0


async def list_consumers(reading: Reading, after: str, limit: int) -> Sequence[LogConsumer]:
    """Return up to `limit` consumers by name."""
    rows = await reading.execute(_LIST, {"after": after, "limit": limit})
    return [LogConsumer(**row._mapping) for row in rows]


async def delete_consumer(tx: Transaction, consumer: str) -> LogConsumer:
    """Delete a consumer; return its last offset. Raises `NotFound`, and `InvalidState` for Berth's own."""
    if consumer in OWN:
        raise InvalidState(f"{consumer} is a consumer of Berth itself and cannot be forgotten", state="own")
    row = (await tx.execute(_DELETE, {"consumer": consumer})).first()
    if row is None:
        raise NotFound(f"there is no consumer {consumer!r}")
    return LogConsumer(**row._mapping)
