"""Reads of keys and transactions, each at a known version (docs/reference/keyvalue.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from orchestrator.database.transactions import Database
from orchestrator.keyvalue.store import keys
from orchestrator.keyvalue.store.keys import Entry, LogPosition, Snapshot
from orchestrator.problems import DatabaseUnavailable
from orchestrator.tenants.principals import Principal


@dataclass(frozen=True, slots=True)
class VersionedRead:
    """Entries read in one snapshot. `more`: the range has further keys."""

    snapshot: Snapshot
    entries: Sequence[Entry]
    more: bool = False


async def find_key(database: Database, namespace: UUID, key: bytes) -> VersionedRead:
    """Read one key; no entries if it does not exist. Raises `DatabaseUnavailable`."""
    async with database.reading() as reading:
        snapshot = await keys.read_snapshot(reading, namespace)
        entry = await keys.read_key(reading, namespace, key)
    return VersionedRead(snapshot, [] if entry is None else [entry])


async def find_range(
    database: Database, namespace: UUID, begin: bytes, end: bytes | None, *, limit: int, bytes_max: int
) -> VersionedRead:
    """Read `[begin, end)` in key order: at most `limit` entries and about `bytes_max` bytes."""
    async with database.reading() as reading:
        snapshot = await keys.read_snapshot(reading, namespace)
        entries, more = await keys.read_range(reading, namespace, begin, end, limit=limit, bytes_max=bytes_max)
    return VersionedRead(snapshot, entries, more)


async def with_versions(database: Database, namespace: UUID, found: VersionedRead) -> VersionedRead:
    """Add the versions to a read that was ahead of the log, now that its transactions are sequenced.

    The resulting version is that of the newest transaction in the read's snapshot, so the entries are the namespace's state
    at exactly that version, however many commits followed. Raises `DatabaseUnavailable` if the log was replaced meanwhile.
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


async def find_transaction(database: Database, principal: Principal, key: str) -> LogPosition | None:
    """Find the transaction that this principal or its tenant committed under the key; None if the log dropped it."""
    principal_id = principal.id if principal.tenant_id is None else None
    async with database.read_one() as reading:
        return await keys.read_transaction(reading, key, principal.tenant_id, principal_id)


async def find_first_version(database: Database) -> int:
    """Return the lowest version that the log keeps."""
    async with database.read_one() as reading:
        return await keys.read_first_version(reading)
