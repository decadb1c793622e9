"""What keys hold, and at which version that is so (docs/reference/keyvalue.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from orchestrator.database.transactions import Database
from orchestrator.keyvalue.store import keys
from orchestrator.keyvalue.store.keys import Committed, Entry, Snapshot
from orchestrator.problems import DatabaseUnavailable
from orchestrator.tenants.principals import Principal


@dataclass(frozen=True, slots=True)
class Found:
    """What was read, in one snapshot. `more`: the range goes on."""

    snapshot: Snapshot
    entries: Sequence[Entry]
    more: bool = False


async def find_key(database: Database, namespace: UUID, key: bytes) -> Found:
    """The entry of one key, or none. Raises `DatabaseUnavailable`."""
    async with database.reading() as reading:
        snapshot = await keys.read_snapshot(reading, namespace)
        entry = await keys.read_key(reading, namespace, key)
    return Found(snapshot, [] if entry is None else [entry])


async def find_range(
    database: Database, namespace: UUID, begin: bytes, end: bytes | None, *, limit: int, bytes_max: int
) -> Found:
    """The entries of `[begin, end)` in the order of their keys, at most `limit` and about `bytes_max` bytes of them."""
    async with database.reading() as reading:
        snapshot = await keys.read_snapshot(reading, namespace)
        entries, more = await keys.read_range(reading, namespace, begin, end, limit=limit, bytes_max=bytes_max)
    return Found(snapshot, entries, more)


async def with_versions(database: Database, namespace: UUID, found: Found) -> Found:
    """The same content with the versions that it got since: `found` was ahead of the log, and is sequenced by now.

    Its `read_version` is that of the newest transaction that its snapshot included, so it is the namespace's state at
    exactly that version, however many commits followed. Raises `DatabaseUnavailable` where the log was replaced meanwhile.
    """
    assert found.snapshot.pending_mark is not None, "the snapshot was ahead of the log"
    unversioned = [entry.event_id for entry in found.entries if entry.version is None]
    async with database.reading() as reading:
        snapshot = await keys.read_by_mark(reading, namespace, found.snapshot.pending_mark, found.snapshot.version)
        versions = await keys.read_versions(reading, unversioned) if unversioned else {}
    if snapshot is None:
        raise DatabaseUnavailable("the newest transaction of the namespace has no version yet; retry")
    entries = [
        replace(entry, version=versions.get(entry.event_id)) if entry.version is None else entry
        for entry in found.entries
    ]
    return replace(found, snapshot=snapshot, entries=entries)


async def find_transaction(database: Database, principal: Principal, key: str) -> Committed | None:
    """The one that this principal, or its tenant, committed under the key, as long as the log keeps it."""
    own = principal.id if principal.tenant_id is None else None
    async with database.read_one() as reading:
        return await keys.read_transaction(reading, key, principal.tenant_id, own)


async def find_event(database: Database, event_id: UUID) -> Committed | None:
    """The place of an event, as long as the log keeps it."""
    async with database.read_one() as reading:
        return await keys.read_event(reading, event_id)


async def find_first_version(database: Database) -> int:
    """The lowest version that the log keeps."""
    async with database.read_one() as reading:
        return await keys.read_first_version(reading)
