"""SQL for claims of allocations: fences, the end of booking, and the end of occupation (DESIGN §5).

The caller of every other function holds the lock of the node's row (`lock_node`).
"""

from __future__ import annotations

from uuid import UUID

from orchestrator.allocations.subject import Subject
from orchestrator.allocations.waits import Wait
from orchestrator.database.transactions import Transaction
from orchestrator.problems import NotFound

_LOCK_NODE = "select from nodes where id = :id for no key update"
_DRAW = "update claims set fence = nextval('fences') where id = :id and closed_at is null returning fence"
_END_RIGHT = """
update claims set booked = false, fence = nextval('fences'), waits_for = :waits_for, waits_since = clock_timestamp(),
                  waits_until = clock_timestamp() + make_interval(secs => cast(:wait_seconds as float8))
where id = :id and closed_at is null returning fence
"""
# Units that were never occupied have no end of occupation.
_CLOSE = """
with closed as (
    update claims set booked = false, occupied = false, closed_at = clock_timestamp(),
                      occupied_until = case when occupied_from is not null then clock_timestamp() end,
                      waits_for = null, waits_since = null, waits_until = null
    where id = :id and closed_at is null returning id, occupied_from
), unpublished as (
    delete from published_ports where allocation_id = :allocation_id and exists (select from closed)
), freed as (
    delete from network_addresses where allocation_id = :allocation_id and exists (select from closed) returning network_id
), left_vlan as (
    update network_vlans set left_at = clock_timestamp() where network_id in (select network_id from freed)
), left_network as (
    update networks set members_version = members_version + 1 where id in (select network_id from freed)
), due as (
    -- The node is probed after each occupation.
    update node_health set next_at = clock_timestamp()
    where node_id = :node_id and exists (select from closed where occupied_from is not null)
)
select count(*) from closed
"""
_SETTLE = """
select quarantine_reported_units(:allocation_id), refresh_node_fit(:node_id), remove_login_data(:allocation_id)
"""
_START_WAITING = "select start_waiting(:node_id, cast(:start_seconds as float8))"


async def lock_node(tx: Transaction, node_id: UUID) -> None:
    """Lock the node, which protects all claims on its units. Raises `NotFound`."""
    if (await tx.execute(_LOCK_NODE, {"id": node_id})).first() is None:
        raise NotFound(f"there is no node {node_id}")


async def draw_fence(tx: Transaction, claim_id: int) -> int:
    """Draw a new fence, which invalidates every older fence of the claim (P7)."""
    fence: int = (await tx.execute(_DRAW, {"id": claim_id})).scalar_one()
    return fence


async def end_right(tx: Transaction, claim_id: int, waits_for: Wait, wait_seconds: float) -> int:
    """End the booking; the units stay occupied until cleanup is proven (P6). Return the new fence.

    The claim stores what its units wait for. A repetition draws another fence.
    """
    values = {"id": claim_id, "waits_for": waits_for.value, "wait_seconds": wait_seconds}
    fence: int = (await tx.execute(_END_RIGHT, values)).scalar_one()
    return fence


async def close_claim(tx: Transaction, subject: Subject) -> None:
    """Close the claim of an allocation whose units are cleaned up. The node's fit shows them free in the same transaction.

    Units that the tenant reported as faulty go into quarantine instead. The address in its tenant's network becomes free.

    The user data and SSH keys are removed from the allocation and its tasks. No task of it is live. The caller then emits its
    event, and after that calls `start_waiting`: no effect precedes its cause in the log.
    """
    closed = (
        await tx.execute(_CLOSE, {"id": subject.claim_id, "node_id": subject.node_id, "allocation_id": subject.id})
    ).scalar_one()
    assert closed == 1, "a claim is closed once"
    await tx.execute(_SETTLE, {"node_id": subject.node_id, "allocation_id": subject.id})


async def start_waiting(tx: Transaction, node_id: UUID, start_seconds: float) -> int:
    """Start the allocations that wait for units of this node that are free now; return how many.

    A worker has `start_seconds` to start each. Their rows are locked only under the node's lock, so that this may follow
    the lock of a quota.
    """
    started: int = (await tx.execute(_START_WAITING, {"node_id": node_id, "start_seconds": start_seconds})).scalar_one()
    return started


_KEEP_WAITING = """
update claims set waits_for = :waits_for, waits_since = clock_timestamp(), waits_until = null
where id = :id and closed_at is null
"""


async def keep_waiting(tx: Transaction, claim_id: int, waits_for: Wait) -> None:
    """Record that the units stay occupied, without a deadline, until an operator or the tenant acts."""
    await tx.execute(_KEEP_WAITING, {"id": claim_id, "waits_for": waits_for.value})
