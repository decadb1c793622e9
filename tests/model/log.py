"""The log of a run, as PostgreSQL keeps it: each event once, in the one order that respects cause and effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, LiteralString

import psycopg


@dataclass(frozen=True, slots=True)
class Event:
    """One event at its place. `tenant` and `key` are empty where it has none."""

    version: int
    type: str
    occurred_at: datetime
    tenant: str
    key: str
    payload: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """How a person finds it."""
        return f"version {self.version} {self.type}"

    def instant(self, name: str) -> datetime:
        """A time of the payload. Raises `KeyError` if it is not there, `ValueError` if it is no time."""
        return datetime.fromisoformat(str(self.payload[name]))

    def instant_or_none(self, name: str) -> datetime | None:
        """A time that may be null or absent."""
        return None if self.payload.get(name) is None else self.instant(name)


_READ: LiteralString = """
select version, event_type, occurred_at, coalesce(tenant_id::text, ''), coalesce(operation_key, ''), payload
from log where version > %s order by version
"""


def sequence(connection: psycopg.Connection[Any]) -> int:
    """Give every event that is visible now its version; answer the newest version."""
    while connection.execute("select log_advance(1000)").fetchone() != (0,):
        pass
    row = connection.execute("select version from log_head").fetchone()
    assert row is not None
    return int(row[0])


def read_log(connection: psycopg.Connection[Any], after: int = 0) -> list[Event]:
    """Every event after that version."""
    return [Event(*row) for row in connection.execute(_READ, (after,)).fetchall()]


def units_of(ranges: Any) -> frozenset[int]:
    """The units of `[[first, last_exclusive], ...]`."""
    return frozenset(unit for first, last in ranges for unit in range(int(first), int(last)))
