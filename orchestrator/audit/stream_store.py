"""SQL of the streams of the audit: leases, positions, and the rows behind a position. The audit streamer runs it."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select

from orchestrator.audit.list_store import Entry, entry_members
from orchestrator.audit.tables import audit_chain
from orchestrator.database.transactions import Reading, Transaction

_BEGIN = "select audit_stream_begin(:name)"
_LEASE = """
update audit_streams set leased_by = :process, leased_until = clock_timestamp() + make_interval(secs => :seconds)
where name = :name and (leased_by = :process or leased_by is null or leased_until < clock_timestamp())
returning sequence
"""
_SAVE = """
update audit_streams set sequence = :to, sent_at = clock_timestamp(), failing_since = null, last_error = null,
                         leased_until = clock_timestamp() + make_interval(secs => :seconds)
where name = :name and leased_by = :process and sequence = :from returning sequence
"""
_NOTE_FAILURE = """
update audit_streams set failing_since = coalesce(failing_since, clock_timestamp()), last_error = left(:why, 500)
where name = :name and leased_by = :process
"""
_RETURN_LEASE = (
    "update audit_streams set leased_by = null, leased_until = null where name = :name and leased_by = :process"
)
_BACKLOG = """
select (select coalesce(max(c.sequence), s.sequence) from audit_chain c) - s.sequence as rows,
       coalesce((select greatest(extract(epoch from clock_timestamp() - c.recorded_at), 0) from audit_chain c
                 where c.sequence > s.sequence order by c.sequence limit 1), 0)::float8 as oldest_seconds,
       s.sequence
from audit_streams s where s.name = :name
"""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that sends to a target, and for how long its lease is renewed."""

    name: str
    process: UUID
    lease_seconds: float


@dataclass(frozen=True, slots=True)
class Backlog:
    """Rows of the chain that a target has not received, and the age of the oldest one; `sequence`: the saved position."""

    rows: int
    oldest_seconds: float
    sequence: int


async def begin(tx: Transaction, name: str) -> None:
    """Enable the stream, unless it is; it begins with the oldest row that is not archived."""
    await tx.execute(_BEGIN, {"name": name})


async def lease(tx: Transaction, holder: Holder) -> int | None:
    """Lease the stream, or renew the lease; return the saved position, None if another process has the lease."""
    values = {"name": holder.name, "process": holder.process, "seconds": holder.lease_seconds}
    position: int | None = (await tx.execute(_LEASE, values)).scalar_one_or_none()
    return position


async def save_position(tx: Transaction, holder: Holder, before: int, position: int) -> bool:
    """Advance the position from `before` and renew the lease; False if another process has the lease now."""
    values = {
        "name": holder.name,
        "process": holder.process,
        "seconds": holder.lease_seconds,
        "from": before,
        "to": position,
    }
    return (await tx.execute(_SAVE, values)).first() is not None


async def note_failure(tx: Transaction, holder: Holder, why: str) -> None:
    """Record why the target takes nothing; the time of the first failure stays until it takes rows again."""
    await tx.execute(_NOTE_FAILURE, {"name": holder.name, "process": holder.process, "why": why})


async def return_lease(tx: Transaction, holder: Holder) -> None:
    """Let another process send at once."""
    await tx.execute(_RETURN_LEASE, {"name": holder.name, "process": holder.process})


async def read_rows(reading: Reading, after: int, limit: int) -> list[Entry]:
    """Up to `limit` rows of the chain after this sequence, in its order."""
    rows = select(*entry_members(audit_chain)).where(audit_chain.c.sequence > after)
    found = await reading.execute(rows.order_by(audit_chain.c.sequence).limit(limit))
    return [Entry(**row._mapping) for row in found]


async def read_backlog(reading: Reading, name: str) -> Backlog | None:
    """How far the target is behind; None if the stream is not enabled."""
    row = (await reading.execute(_BACKLOG, {"name": name})).first()
    return None if row is None else Backlog(**row._mapping)
