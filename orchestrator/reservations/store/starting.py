"""SQL for reservations whose template is due to start, and for claims on nodes that are out of service.

Searches are bounded, without locks, the earliest first; the command that acts locks and evaluates again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.placement.windows import Pick
from orchestrator.reservations.store.reservations import ReservationSubject

# Without those that were cancelled in the lost interval of a restore: what is left of it may be more than a run handles.
_DUE = """
select id from reservations
where state = 'confirmed' and waits_until <= (select clock_timestamp()) and template is not null
  and (ends_at is null or ends_at > clock_timestamp())
  and not exists (select from restore_replays w where w.kind = 'cancel' and w.subject_id = reservations.id and w.done_at is null)
order by waits_until, position limit :limit
"""
# Claims of begun reservations of a SKU on nodes that are not active or not online. Equal units may be free for a later one, so
# each reservation is tried in turn, by position.
_STRANDED = """
select distinct r.id, r.position from nodes n
join claims c on c.node_id = n.id and c.closed_at is null and c.owner_kind = 'reservation'
join reservations r on r.id = c.owner_id
where (n.state <> 'active' or not n.online) and n.state <> 'retired' and r.sku is not null and r.state = 'confirmed'
  and r.template is null and r.starts_at <= clock_timestamp() and (r.ends_at is null or r.ends_at > clock_timestamp())
  and r.position > :after
order by r.position limit :limit
"""
_STOPPED = """
select c.id, c.node_id, r.sku, r.gpus, r.region, r.ends_at,
       case when n.state <> 'active' then 'the node is ' || n.state
            when not n.online then 'the node is offline'
            else coalesce(s.reason, 'a slot is out of service') end as reason,
       n.state = 'active' and s.stopped = 0 as silent
from reservations r join claims c on c.owner_id = r.id and c.owner_kind = 'reservation' and c.closed_at is null
join nodes n on n.id = c.node_id
left join lateral (select min(coalesce(s.reason, 'a slot is out of service')) as reason, count(*) as stopped from slots s
                   where s.node_id = n.id and s.state = 'out_of_service' and c.units @> s.unit) s on true
where r.id = :id and r.sku is not null and (n.state <> 'active' or not n.online or s.stopped > 0)
order by silent, c.id limit 1
"""
# A node may come back, or an equal one become free, so each reservation is tried in turn, by position.
_LATE = """
select id, position from reservations
where state = 'confirmed' and waits_for = 'node' and position > :after order by position limit :limit
"""
_READ_WAIT = "select waits_for = 'node' as begun, waits_until from reservations where id = :id"
_WAIT_FOR_NODE = """
with waiting as (
    update reservations set row_version = row_version + 1, waits_for = 'node', waits_since = cast(:clock as timestamptz),
        waits_until = least(ends_at, cast(:clock as timestamptz) + make_interval(secs => :seconds))
    where id = :id returning *
)
insert into outbox (event_type, correlation_id, tenant_id, subject, payload)
select 'reservation.waiting', w.correlation_id, w.tenant_id, 'reservations/' || w.id,
       jsonb_build_object('reservation_id', w.id, 'holder_id', w.holder_id, 'reason', cast(:reason as text),
                          'waits_until', rfc3339(w.waits_until), 'judged_at', rfc3339(cast(:clock as timestamptz)))
from waiting w
"""
_WAITING = """
select distinct a.node_id from allocations a join claims c on c.id = a.claim_id
where a.waits_for = 'units' and a.state = 'requested' and c.booked
  and (a.ends_at is null or a.ends_at > clock_timestamp())
  and not exists (select from claims o where o.node_id = a.node_id and o.closed_at is null and o.occupied
                  and o.units && c.units)
  and not exists (select from slots s where s.node_id = a.node_id and s.state = 'out_of_service' and c.units @> s.unit)
limit :limit
"""
_LOCK_NODES = """
select id from nodes
where id = any (array(select node_id from claims where owner_id = :id and closed_at is null and node_id is not null)
                || cast(:also as uuid))
order by id for no key update
"""
_MOVE = "select move_claim(:claim_id, :node_id, :mask, :reason, :judged_at)"


@dataclass(frozen=True, slots=True)
class StoppedClaim:
    """A claim of a SKU's reservation whose node or slots cannot be used now, with the reason.

    `silent`: nothing was taken out of service; the node is only offline, and may come back.
    """

    id: int
    node_id: UUID
    sku: str
    gpus: int
    region: str
    ends_at: datetime | None
    reason: str
    silent: bool


async def find_due_starts(reading: Reading, limit: int) -> list[UUID]:
    """Reservations with a template whose window has begun and is not past."""
    return list((await reading.execute(_DUE, {"limit": limit})).scalars())


async def find_stranded(reading: Reading, after: int, limit: int) -> list[tuple[UUID, int]]:
    """Begun, unused reservations of a SKU on nodes out of service, after this position, each with its position.

    Without those that have a template.
    """
    return [(row.id, row.position) for row in await reading.execute(_STRANDED, {"after": after, "limit": limit})]


async def find_stopped_claim(reading: Reading, reservation_id: UUID) -> StoppedClaim | None:
    """The first claim of the reservation that cannot be used on its node; units out of service before offline nodes."""
    row = (await reading.execute(_STOPPED, {"id": reservation_id})).first()
    return None if row is None else StoppedClaim(**row._mapping)


async def find_late_starts(reading: Reading, after: int, limit: int) -> list[tuple[UUID, int]]:
    """Reservations whose start waits for a node, after this position, each with its position."""
    return [(row.id, row.position) for row in await reading.execute(_LATE, {"after": after, "limit": limit})]


async def may_wait_for_node(tx: Transaction, subject: ReservationSubject, claim: StoppedClaim) -> tuple[bool, bool]:
    """Whether the start of a locked reservation may wait for the claim's node, and whether it waits already."""
    wait = (await tx.execute(_READ_WAIT, {"id": subject.id})).one()
    return claim.silent and not (wait.begun and wait.waits_until <= subject.clock), wait.begun


async def wait_for_node(tx: Transaction, subject: ReservationSubject, claim: StoppedClaim, seconds: float) -> None:
    """Let the start wait for a node, at most `seconds` and not beyond its window; emit `reservation.waiting`."""
    values = {"id": subject.id, "clock": subject.clock, "seconds": seconds, "reason": claim.reason}
    await tx.execute(_WAIT_FOR_NODE, values)


async def find_nodes_to_start(reading: Reading, limit: int) -> list[UUID]:
    """Nodes with allocations that wait for units that are free and in service now."""
    return list((await reading.execute(_WAITING, {"limit": limit})).scalars())


async def lock_nodes_of(tx: Transaction, reservation_id: UUID, also: UUID) -> None:
    """Lock the nodes of the reservation and one more, by id."""
    await tx.execute(_LOCK_NODES, {"id": reservation_id, "also": also})


async def move_claim(tx: Transaction, claim: StoppedClaim, to: Pick, judged_at: datetime) -> bool:
    """Move the claim, with its event and a new fence; False if the target is no longer free throughout its window."""
    values = {
        "claim_id": claim.id, "node_id": to.node_id, "mask": to.mask, "reason": claim.reason, "judged_at": judged_at,
    }  # fmt: skip
    moved: bool = (await tx.execute(_MOVE, values)).scalar_one()
    return moved
