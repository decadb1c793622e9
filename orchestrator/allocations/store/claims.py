"""Claims of allocations: fences, the end of the right, and the end of occupation (DESIGN §5).

Every function here wants the node's row locked by the caller.
"""

from __future__ import annotations

from uuid import UUID

from orchestrator.allocations.waits import Wait
from orchestrator.database.transactions import Transaction

_DRAW = "update claims set fence = nextval('fences') where id = :id and closed_at is null returning fence"
_END_RIGHT = """
update claims set booked = false, fence = nextval('fences'), waits_for = :waits_for, waits_since = clock_timestamp(),
                  waits_until = clock_timestamp() + make_interval(secs => cast(:wait_seconds as float8))
where id = :id and closed_at is null returning fence
"""
# Units that were never occupied were waited for until then; then there is no end of their occupation either.
_CLOSE = """
with closed as (
    update claims set booked = false, occupied = false, closed_at = clock_timestamp(),
                      occupied_until = case when occupied_from is not null then clock_timestamp() end,
                      waits_for = null, waits_since = null, waits_until = null
    where id = :id and closed_at is null returning id
)
select count(*) from closed
"""
_REFRESH_FIT = "select refresh_node_fit(:node_id)"
_START_WAITING = "select start_waiting(:node_id, cast(:start_seconds as float8))"


async def draw_fence(tx: Transaction, claim_id: int) -> int:
    """Make every older fence of this claim worthless (P7) and answer the new one."""
    fence: int = (await tx.execute(_DRAW, {"id": claim_id})).scalar_one()
    return fence


async def end_right(tx: Transaction, claim_id: int, waits_for: Wait, wait_seconds: float) -> int:
    """End the right to the units, which stay occupied until cleanup is proven (P6); answer the new fence.

    The claim remembers what its units wait for. Repeating it draws another fence.
    """
    values = {"id": claim_id, "waits_for": waits_for.value, "wait_seconds": wait_seconds}
    fence: int = (await tx.execute(_END_RIGHT, values)).scalar_one()
    return fence


async def close_claim(tx: Transaction, claim_id: int, node_id: UUID) -> None:
    """Give the units back: nothing is left on them. The node's fit shows them free in the same transaction.

    Whoever frees units that were occupied calls `start_waiting` as well, once it has told of it: no effect before its cause.
    """
    closed = (await tx.execute(_CLOSE, {"id": claim_id})).scalar_one()
    assert closed == 1, "a claim is closed once"
    await tx.execute(_REFRESH_FIT, {"node_id": node_id})


async def start_waiting(tx: Transaction, node_id: UUID, start_seconds: float) -> int:
    """Start whatever waits for units of this node that nobody occupies; answers how many allocations that were.

    A worker has `start_seconds` to pick each up. Rows of theirs are locked by nobody who has not locked the node, so this
    may come after a quota's lock.
    """
    started: int = (await tx.execute(_START_WAITING, {"node_id": node_id, "start_seconds": start_seconds})).scalar_one()
    return started


_KEEP_WAITING = """
update claims set waits_for = :waits_for, waits_since = clock_timestamp(), waits_until = null
where id = :id and closed_at is null
"""


async def keep_waiting(tx: Transaction, claim_id: int, waits_for: Wait) -> None:
    """The units stay occupied, without a deadline, until somebody acts."""
    await tx.execute(_KEEP_WAITING, {"id": claim_id, "waits_for": waits_for.value})
