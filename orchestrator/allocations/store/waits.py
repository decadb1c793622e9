"""SQL that records what an allocation waits for (P9): on its row until it is final, and on its claim during cleanup."""

from __future__ import annotations

from datetime import datetime

from orchestrator.allocations.states import FINAL_STATES
from orchestrator.allocations.subject import Subject
from orchestrator.allocations.waits import Wait
from orchestrator.database.transactions import Transaction

_WAIT = """
with at as materialized (select clock_timestamp() as now),
deadline as (select cast(:clock as timestamptz) + make_interval(secs => cast(:wait_seconds as float8)) as at),
claim as (
    update claims set waits_for = :waits_for, waits_since = at.now,
                      waits_until = deadline.at
    from at, deadline where claims.id = :claim_id
)
update allocations a set
    row_version = a.row_version + 1,
    release_attempts = :release_attempts,
    waits_for = case when :final then null else :waits_for end,
    waits_since = case when not :final then at.now end,
    waits_until = case when not :final then deadline.at end
from at, deadline
where a.id = :id and a.row_version = :row_version
returning a.row_version
"""

_WAIT_IN_STATE = """
update allocations set row_version = row_version + 1, waits_for = :waits_for, waits_since = :since, waits_until = :until
where id = :id and row_version = :row_version
returning row_version
"""


async def wait_in_state(tx: Transaction, subject: Subject, waits_for: Wait, until: datetime) -> int:
    """Record the next wait of an allocation that keeps its claim; return the new row version."""
    values = {"id": subject.id, "row_version": subject.row_version, "waits_for": waits_for.value}
    row = await tx.execute(_WAIT_IN_STATE, {**values, "since": subject.clock, "until": until})
    row_version: int = row.scalar_one()
    return row_version


async def wait_for(
    tx: Transaction, subject: Subject, waits_for: Wait, wait_seconds: float | None, *, release_attempts: int
) -> int:
    """Record the next wait and the number of release attempts begun; return the new row version."""
    values = {
        "id": subject.id,
        "claim_id": subject.claim_id,
        "row_version": subject.row_version,
        "waits_for": waits_for.value,
        "wait_seconds": wait_seconds,
        "clock": subject.clock,
        "release_attempts": release_attempts,
        "final": subject.state in FINAL_STATES,
    }
    row_version: int = (await tx.execute(_WAIT, values)).scalar_one()
    return row_version
