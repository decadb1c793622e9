"""Metered intervals, and how far metering is behind the log (docs/reference/billing.md)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

import psycopg

from orchestrator.database.transactions import Reading

CONSUMER = "metering"
POSITIONS_TABLE = "consumer_positions"
"""The table of log offsets of consumers that store them in this database; truncation respects them."""

_CREDIT = "select credit_outages(%s::jsonb)"
_METER = "select meter(%s::jsonb, %s::jsonb)"
_LAG = """
select h.version - coalesce(c.version, 0) as versions,
       coalesce((select extract(epoch from clock_timestamp() - l.occurred_at) from log l
                 where l.version > coalesce(c.version, 0) order by l.version limit 1), 0)::float8 as seconds
from log_head h left join consumer_positions c on c.consumer = :consumer
"""
_TRUSTED_HEAD = """
select case when leader_id = postgres_leader_id() then version end as version from log_head
"""


@dataclass(frozen=True, slots=True)
class Opening:
    """An allocation became active; `version` is the version of the event."""

    allocation_id: UUID
    tenant_id: UUID
    sku: str
    gpus: int
    price_version: int
    at: str
    version: int


@dataclass(frozen=True, slots=True)
class Closing:
    """An allocation stopped being active, if it was."""

    allocation_id: UUID
    at: str
    version: int


@dataclass(frozen=True, slots=True)
class Credit:
    """Time without service that is not charged, once its outage has ended with the event of `version`."""

    allocation_id: UUID
    starts_at: str
    ends_at: str
    version: int


@dataclass(frozen=True, slots=True)
class Lag:
    """How far metering is behind the head of the log: in versions, and the age of the oldest in seconds."""

    versions: int
    seconds: float


async def meter(
    transaction: psycopg.AsyncConnection[Any], openings: Sequence[Opening], closings: Sequence[Closing]
) -> int:
    """Open and close intervals in the consumer's transaction; return how many ledger lines were written.

    A redelivered event changes nothing. Raises `psycopg.errors.RaiseException` for an unknown price.
    """
    values = [json.dumps([asdict(each) for each in changes], default=str) for changes in (openings, closings)]
    row = await (await transaction.execute(_METER, values)).fetchone()
    assert row is not None, "a function returns a row"
    return int(row[0])


async def credit(transaction: psycopg.AsyncConnection[Any], credits_due: Sequence[Credit]) -> int:
    """Write credits in the consumer's transaction, after its intervals; return how many ledger lines were written.

    A redelivered event changes nothing. A credit covers metered time only, and none that an earlier one covers.
    """
    if not credits_due:
        return 0
    row = await (
        await transaction.execute(_CREDIT, [json.dumps([asdict(c) for c in credits_due], default=str)])
    ).fetchone()
    assert row is not None, "a function returns a row"
    return int(row[0])


async def read_lag(reading: Reading) -> Lag:
    """Return how far metering is behind the log."""
    row = (await reading.execute(_LAG, {"consumer": CONSUMER})).one()
    return Lag(row.versions, row.seconds)


async def read_trusted_head(reading: Reading) -> int | None:
    """Return the newest version; None while versions may still change, because this timeline is not accepted yet."""
    version: int | None = (await reading.execute(_TRUSTED_HEAD)).scalar_one()
    return version
