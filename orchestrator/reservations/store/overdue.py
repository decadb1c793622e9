"""SQL for overdue holds and windows past their end: found without locks, ended under them (P5: late, never early)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.reservations.refusals import ResourceOutOfService
from orchestrator.reservations.states import ReservationState
from orchestrator.reservations.store.reservations import ReservationEnd, end_reservation, lock_reservation
from orchestrator.tenants.principals import Actor

# Overdue holds are few, because sweepers end them within seconds, so the index by deadline serves all of these.
# The clock is read in a subquery, once: an index cannot be searched for a value that may change at each row.
# OFFSET keeps the planner from joining a few holds with all open claims.
_OVERDUE = """
select r.id from reservations r
where r.state = 'hold' and r.expires_at <= (select clock_timestamp())
  and (cast(:tenant_id as uuid) is null or r.tenant_id = :tenant_id)
  and (cast(:pool_id as integer) is null or exists (
      select from claims c where c.owner_id = r.id and c.closed_at is null
      and (select n.pool_id from nodes n where n.id = c.node_id) = :pool_id offset 0))
order by r.expires_at, r.position limit :limit
"""
_OVER = """
select r.id from reservations r
where r.state = 'confirmed' and r.waits_until <= (select clock_timestamp()) and r.ends_at <= clock_timestamp()
order by r.waits_until, r.position limit :limit
"""
_WAITED_FOR_NODE = "select waits_for = 'node' from reservations where id = :id"
_NODE_TOO_LATE = (ResourceOutOfService.code, "its node was offline until its window ended")
# Arrays keep the planner from joins: a few rows are looked up, whatever number it estimates.
_RETIRE = """
with picked as (
    select ctid from reservations
    where retire_after <= (select clock_timestamp()) order by retire_after, position limit :limit for update skip locked
), gone as (
    delete from reservations where ctid = any (array(select ctid from picked)) returning id, position
), claims_gone as (
    delete from claims
    where owner_id = any (array(select id from gone)) and owner_kind = 'reservation' and closed_at is not null
)
select count(*) as number, max(position) as highest from gone
"""
_RAISE = "update reservation_watermark set position = :position where position < :position"


async def find_overdue_holds(
    reading: Reading, limit: int, *, tenant_id: UUID | None = None, pool_id: int | None = None
) -> list[UUID]:
    """At most `limit` holds past their deadline, the earliest first; of a tenant or with units of a pool, if given."""
    values = {"tenant_id": tenant_id, "pool_id": pool_id, "limit": limit}
    return list((await reading.execute(_OVERDUE, values)).scalars())


async def find_windows_over(reading: Reading, limit: int) -> list[UUID]:
    """At most `limit` confirmed windows that have passed, the earliest first."""
    return list((await reading.execute(_OVER, {"limit": limit})).scalars())


async def expire_if_overdue(tx: Transaction, reservation_id: UUID, retention_seconds: float, actor: Actor) -> bool:
    """Expire the hold if its deadline has passed by the clock after its locks; return whether it expired."""
    subject = await lock_reservation(tx, reservation_id, None)
    if subject is None or not subject.overdue:
        return False
    await end_reservation(tx, subject, ReservationEnd(ReservationState.EXPIRED, retention_seconds), actor)
    return True


async def release_if_over(tx: Transaction, reservation_id: UUID, retention_seconds: float, actor: Actor) -> bool:
    """End a confirmed window that has passed by the clock after its locks; return whether it ended.

    It becomes `released`, or `cancelled` with a failure if its template waited for a node until then.
    """
    subject = await lock_reservation(tx, reservation_id, None)
    if subject is None or not subject.over:
        return False
    change = ReservationEnd(ReservationState.RELEASED, retention_seconds)
    if (await tx.execute(_WAITED_FOR_NODE, {"id": reservation_id})).scalar_one():
        change = ReservationEnd(ReservationState.CANCELLED, retention_seconds, failure=_NODE_TOO_LATE)
    await end_reservation(tx, subject, change, actor)
    return True


async def delete_retired(tx: Transaction, limit: int) -> int:
    """Delete at most `limit` reservations past their retention, the earliest first; return how many.

    The watermark rises in the same transaction, so that their ids answer `reservation_retired`.
    """
    row = (await tx.execute(_RETIRE, {"limit": limit})).one()
    if row.number:
        await tx.execute(_RAISE, {"position": row.highest})
    number: int = row.number
    return number
