"""Reads of keys, values and positions in the log (docs/reference/keyvalue.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from orchestrator.database.transactions import Reading

_SNAPSHOT = """
select h.version as head, h.leader_id || '-' || h.epoch as leader, o.id as pending_mark
from log_head h left join kv_namespaces n on n.id = :namespace left join outbox o on o.id = n.last_mark
"""
# Uses the index of a namespace's transactions, and reads only those after the snapshot.
_BY_MARK = """
select version as committed_version, leader_id as leader from log
where coalesce(tenant_id, '00000000-0000-0000-0000-000000000000') = :namespace and event_type = 'transaction'
  and version > :after and outbox_id = :mark
"""
_VERSIONS = "select event_id, version as changed_version from log where event_id = any (cast(:event_ids as uuid[]))"
_FIND = """
select k.key, k.value, k.event_id, l.version as changed_version
from kv_keys k left join log l on l.event_id = k.event_id
where k.namespace = :namespace and k.key = :key and k.value is not null
"""
_RANGE = """
select k.key, k.value, k.event_id, l.version as changed_version
from (
    select s.*, sum(octet_length(s.key) + octet_length(s.value)) over (order by s.key)
                - octet_length(s.key) - octet_length(s.value) as before
    from (
        select * from kv_keys
        where namespace = :namespace and key >= :begin and (cast(:end as bytea) is null or key < :end) and value is not null
        order by key limit :limit
    ) s
) k left join log l on l.event_id = k.event_id
where k.before < :bytes_max order by k.key
"""
_COUNT = """
select count(*) from (
    select from kv_keys
    where namespace = :namespace and key >= :begin and (cast(:end as bytea) is null or key < :end) and value is not null
    limit :limit
) found
"""
_TRANSACTION = """
select version as committed_version, leader_id as leader from log
where event_type = 'transaction' and operation_key = :key and tenant_id is not distinct from cast(:tenant_id as uuid)
  and payload ->> 'principal_id' is not distinct from cast(:principal_id as text)
order by version desc limit 1
"""
_FIRST = "select version as first_version from log_first"


@dataclass(frozen=True, slots=True)
class Entry:
    """An existing key. `version`: of its last change, which is `event_id`; None if the log dropped it or it is unsequenced."""

    key: bytes
    value: bytes
    version: int | None
    event_id: UUID


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The log's head in a snapshot, and the leader that issued it.

    `pending_mark`: the outbox id of the namespace's newest transaction, if it is not sequenced yet. Marks rise with
    versions, so without a pending mark the snapshot is the namespace's state at `version`.
    """

    version: int
    leader_id: str
    pending_mark: int | None = None


async def read_snapshot(reading: Reading, namespace: UUID) -> Snapshot:
    """Return the log's head in this snapshot, and whether the namespace is ahead of it."""
    row = (await reading.execute(_SNAPSHOT, {"namespace": namespace})).one()
    return Snapshot(row.head, row.leader, row.pending_mark)


async def read_by_mark(reading: Reading, namespace: UUID, mark: int, after: int) -> Snapshot | None:
    """Return the version after `after` of the namespace's transaction with this outbox id; None if not sequenced."""
    row = (await reading.execute(_BY_MARK, {"namespace": namespace, "mark": mark, "after": after})).first()
    return None if row is None else Snapshot(row.committed_version, row.leader)


async def read_versions(reading: Reading, event_ids: Sequence[UUID]) -> dict[UUID, int]:
    """Return the versions of the given events; those that the log dropped are missing."""
    rows = await reading.execute(_VERSIONS, {"event_ids": list(event_ids)})
    return {row.event_id: row.changed_version for row in rows}


async def read_key(reading: Reading, namespace: UUID, key: bytes) -> Entry | None:
    """Return one key; None if it does not exist."""
    row = (await reading.execute(_FIND, {"namespace": namespace, "key": key})).first()
    return None if row is None else Entry(bytes(row.key), bytes(row.value), row.changed_version, row.event_id)


async def read_range(
    reading: Reading, namespace: UUID, begin: bytes, end: bytes | None, *, limit: int, bytes_max: int
) -> tuple[Sequence[Entry], bool]:
    """Return up to `limit` keys of `[begin, end)` in order (no end: to the last key), and whether there are more.

    Returns at least one if any exists, then as many as begin within `bytes_max` bytes of keys and values.
    """
    values = {"namespace": namespace, "begin": begin, "end": end, "limit": limit + 1}
    count = (await reading.execute(_COUNT, values)).scalar_one()
    rows = await reading.execute(_RANGE, {**values, "limit": limit, "bytes_max": bytes_max})
    found = [Entry(bytes(row.key), bytes(row.value), row.changed_version, row.event_id) for row in rows]
    return found, count > len(found)


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The version of a transaction, and the leader that issued it."""

    version: int
    leader_id: str


async def read_transaction(
    reading: Reading, key: str, tenant_id: UUID | None, principal_id: UUID | None
) -> LogPosition | None:
    """Return the transaction committed under this key (an operator's by principal); None if the log dropped it."""
    values = {"key": key, "tenant_id": tenant_id, "principal_id": None if principal_id is None else str(principal_id)}
    row = (await reading.execute(_TRANSACTION, values)).first()
    return None if row is None else LogPosition(row.committed_version, row.leader)


async def read_first_version(reading: Reading) -> int:
    """Return the lowest version that the log keeps."""
    first: int = (await reading.execute(_FIRST)).scalar_one()
    return first
