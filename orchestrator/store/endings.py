"""Allocations that end by themselves: who is to be warned, and whose time is over. Looked at without locks, earliest first."""

from __future__ import annotations

from uuid import UUID

from orchestrator.store.database import Reading, Transaction

# One that waits for its units until its end is failed by its own deadline, so that its tenant learns why it never ran.
_ENDED = """
select id from allocations
where ends_at is not null and state in ('requested', 'provisioning', 'active')
  and ends_at <= (select clock_timestamp()) and waits_for <> 'units'
order by ends_at limit :limit
"""
_ENDING = """
select id from allocations
where ends_at is not null and state in ('requested', 'provisioning', 'active') and ending_told_at is null
  and ends_at > (select clock_timestamp())
  and ends_at <= (select clock_timestamp() + make_interval(secs => :notice_seconds))
order by ends_at limit :limit
"""
_NOTE_TOLD = """
update allocations set ending_told_at = clock_timestamp()
where id = :id and ending_told_at is null and state in ('requested', 'provisioning', 'active')
  and ends_at > clock_timestamp() and ends_at <= clock_timestamp() + make_interval(secs => :notice_seconds)
returning ending_told_at
"""


async def find_ended(reading: Reading, limit: int) -> list[UUID]:
    """Allocations that nobody has released although their time is over."""
    return list((await reading.execute(_ENDED, {"limit": limit})).scalars())


async def find_ending(reading: Reading, notice_seconds: float, limit: int) -> list[UUID]:
    """Allocations whose end is nearer than `notice_seconds`, and whose tenant has not been told."""
    return list((await reading.execute(_ENDING, {"notice_seconds": notice_seconds, "limit": limit})).scalars())


async def note_told_if_ending(tx: Transaction, allocation_id: UUID, notice_seconds: float) -> bool:
    """Whether its tenant is to be told now, judged by the clock after the caller's locks: once, and only before its end."""
    values = {"id": allocation_id, "notice_seconds": notice_seconds}
    return (await tx.execute(_NOTE_TOLD, values)).first() is not None
