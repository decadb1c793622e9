"""What keys hold, and at which version that is so (docs/kv.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from orchestrator.allocations.states import Principal
from orchestrator.database.transactions import Database
from orchestrator.keyvalue.store import keys
from orchestrator.keyvalue.store.keys import Committed, Entry, Snapshot


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


async def find_transaction(database: Database, principal: Principal, key: str) -> Committed | None:
    """The one that this principal, or its tenant, committed under the key, as long as the log keeps it."""
    own = principal.id if principal.tenant_id is None else None
    async with database.glance() as reading:
        return await keys.read_transaction(reading, key, principal.tenant_id, own)


async def find_event(database: Database, event_id: UUID) -> Committed | None:
    """The place of an event, as long as the log keeps it."""
    async with database.glance() as reading:
        return await keys.read_event(reading, event_id)


async def find_first_version(database: Database) -> int:
    """The lowest version that the log keeps."""
    async with database.glance() as reading:
        return await keys.read_first_version(reading)
