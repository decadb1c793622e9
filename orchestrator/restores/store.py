"""SQL for what a restore must not undo: ends of a lost interval that are done again once, after the restore is closed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction

RELEASE, CANCEL = "release", "cancel"
DONE, NOOP = "done", "noop"
# By the partial index, which holds only what is left.
_FIND = """
select w.kind, w.subject_id, w.ended_at from restore_replays w
where w.done_at is null and w.kind in ('release', 'cancel') order by w.kind, w.subject_id limit :limit
"""
_CONCLUDE = """
update restore_replays set done_at = clock_timestamp(), outcome = :outcome
where kind = :kind and subject_id = :subject_id and done_at is null
"""
_IS_CANCELLED = """
select exists (select from restore_replays w where w.kind = 'cancel' and w.subject_id = :reservation_id and w.done_at is null)
"""


@dataclass(frozen=True, slots=True)
class Replay:
    """An end that is to be done again. `ended_at`: when it was done in the lost interval."""

    kind: str
    subject_id: UUID
    ended_at: datetime


async def find_replays(reading: Reading, limit: int) -> list[Replay]:
    """At most `limit` releases and cancels that are left; while a restore is open no process can ask."""
    return [Replay(row.kind, row.subject_id, row.ended_at) for row in await reading.execute(_FIND, {"limit": limit})]


async def is_cancelled(tx: Transaction, reservation_id: UUID) -> bool:
    """Whether the locked reservation was cancelled in the lost interval of a restore, and that is yet to be done again."""
    return bool((await tx.execute(_IS_CANCELLED, {"reservation_id": reservation_id})).scalar_one())


async def conclude_replay(tx: Transaction, replay: Replay, outcome: str) -> bool:
    """Note that the end was done, or had been; return whether this call did."""
    values = {"kind": replay.kind, "subject_id": replay.subject_id, "outcome": outcome}
    return (await tx.execute(_CONCLUDE, values)).rowcount > 0
