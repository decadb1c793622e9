"""Where each consumer of the log stands, so that a rebuilt stream does not replay what is done (DESIGN §7)."""

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
_LIST = "select consumer, version, updated_at from consumer_positions order by version, consumer"
_DELETE = "delete from consumer_positions where consumer = :consumer returning consumer, version, updated_at"
OWN = frozenset({"berth-relay", "metering"})
"""Berth's own, which are there before they first come: what they have not done would be lost with the log."""
_READ = "select version from consumer_positions where consumer = :consumer"


@dataclass(frozen=True, slots=True)
class LogConsumer:
    """Everything up to `version` is done, since `updated_at`."""

    consumer: str
    version: int
    updated_at: datetime


async def raise_position(tx: Transaction, consumer: str, version: int) -> None:
    """Everything at or below `version` is done; a position never goes back."""
    await tx.execute(_SAVE, {"consumer": consumer, "version": version})


async def read_position(reading: Reading, consumer: str) -> int:
    """The last version that is done; 0 for a consumer that never said."""
    version: int | None = (await reading.execute(_READ, {"consumer": consumer})).scalar_one_or_none()
    return version or 0


async def list_consumers(reading: Reading) -> Sequence[LogConsumer]:
    """All of them, who is the furthest behind first; they are made by operators and processes, so there are few."""
    return [LogConsumer(**row._mapping) for row in await reading.execute(_LIST)]


async def delete_consumer(tx: Transaction, consumer: str) -> LogConsumer:
    """Nothing is kept for it any more; answers where it was. Raises `NotFound`, and `InvalidState` for Berth's own."""
    if consumer in OWN:
        raise InvalidState(f"{consumer} is a part of Berth and comes again", state="own")
    row = (await tx.execute(_DELETE, {"consumer": consumer})).first()
    if row is None:
        raise NotFound(f"there is no consumer {consumer!r}")
    return LogConsumer(**row._mapping)
