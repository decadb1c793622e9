"""What keys hold, and at which version that is so (docs/kv.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from orchestrator.store import keys
from orchestrator.store.database import Database
from orchestrator.store.keys import Entry, Snapshot


@dataclass(frozen=True, slots=True)
class Found:
    """What was read, in one snapshot. `more`: the range goes on."""

    snapshot: Snapshot
    entries: Sequence[Entry]
    more: bool = False

    @property
    def waits(self) -> bool:
        """Whether something of it has no version yet."""
        return any(entry.waits for entry in self.entries)


async def find_key(database: Database, namespace: UUID, key: bytes) -> Found:
    """The entry of one key, or none. Raises `DatabaseUnavailable`."""
    async with database.reading() as reading:
        snapshot = await keys.read_snapshot(reading)
        entry = await keys.read_key(reading, namespace, key)
    return Found(snapshot, [] if entry is None else [entry])


async def find_range(
    database: Database, namespace: UUID, begin: bytes, end: bytes | None, *, limit: int, bytes_max: int
) -> Found:
    """The entries of `[begin, end)` in the order of their keys, at most `limit` and about `bytes_max` bytes of them."""
    async with database.reading() as reading:
        snapshot = await keys.read_snapshot(reading)
        entries, more = await keys.read_range(reading, namespace, begin, end, limit=limit, bytes_max=bytes_max)
    return Found(snapshot, entries, more)
