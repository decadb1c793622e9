"""Reads of keys and values (docs/kv.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from orchestrator.database.transactions import Reading

_HEAD = "select version as head, leader_id as leader from log_head"
_FIND = """
select k.key, k.value, l.version as changed_version, exists (select from outbox o where o.id = k.mark) as waits
from kv_keys k left join log l on l.event_id = k.event_id
where k.namespace = :namespace and k.key = :key and k.value is not null
"""
_RANGE = """
select k.key, k.value, l.version as changed_version, exists (select from outbox o where o.id = k.mark) as waits
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
_EVENT = "select version as committed_version, leader_id as leader from log where event_id = :event_id"
_FIRST = "select version as first_version from log_first"


@dataclass(frozen=True, slots=True)
class Entry:
    """One key that exists. `version`: of its last change, None where it has none yet (`waits`) or the log has forgotten it."""

    key: bytes
    value: bytes
    version: int | None
    waits: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A version that what is read with it includes, and who issued it."""

    version: int
    leader_id: str


async def read_snapshot(reading: Reading) -> Snapshot:
    """The log's head in this snapshot."""
    row = (await reading.execute(_HEAD)).one()
    return Snapshot(row.head, row.leader)


async def read_key(reading: Reading, namespace: UUID, key: bytes) -> Entry | None:
    """One key."""
    row = (await reading.execute(_FIND, {"namespace": namespace, "key": key})).first()
    return None if row is None else Entry(bytes(row.key), bytes(row.value), row.changed_version, row.waits)


async def read_range(
    reading: Reading, namespace: UUID, begin: bytes, end: bytes | None, *, limit: int, bytes_max: int
) -> tuple[Sequence[Entry], bool]:
    """Up to `limit` keys of `[begin, end)` in their order (to the last one without an end), and whether there are more.

    At least one, if there is one, then as many as begin within `bytes_max` bytes of keys and values.
    """
    values = {"namespace": namespace, "begin": begin, "end": end, "limit": limit + 1}
    there = (await reading.execute(_COUNT, values)).scalar_one()
    rows = await reading.execute(_RANGE, {**values, "limit": limit, "bytes_max": bytes_max})
    found = [Entry(bytes(row.key), bytes(row.value), row.changed_version, row.waits) for row in rows]
    return found, there > len(found)


@dataclass(frozen=True, slots=True)
class Committed:
    """Where a transaction stands in the log."""

    version: int
    leader_id: str


async def read_event(reading: Reading, event_id: UUID) -> Committed | None:
    """The place of an event, as long as the log keeps it."""
    row = (await reading.execute(_EVENT, {"event_id": event_id})).first()
    return None if row is None else Committed(row.committed_version, row.leader)


async def read_transaction(
    reading: Reading, key: str, tenant_id: UUID | None, principal_id: UUID | None
) -> Committed | None:
    """The transaction that was committed under this key, as long as the log keeps it; an operator's by who he is."""
    own = {"key": key, "tenant_id": tenant_id, "principal_id": None if principal_id is None else str(principal_id)}
    row = (await reading.execute(_TRANSACTION, own)).first()
    return None if row is None else Committed(row.committed_version, row.leader)


async def read_first_version(reading: Reading) -> int:
    """The lowest version that the log keeps."""
    first: int = (await reading.execute(_FIRST)).scalar_one()
    return first
