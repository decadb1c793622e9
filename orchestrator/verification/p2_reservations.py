"""P2 for reservations: the reservation, its claims, its operation record and its events are there together or not at all."""

from __future__ import annotations

from psycopg.sql import SQL

from orchestrator.verification.p2_together import LOG_SPREAD_SECONDS
from orchestrator.verification.verdict import Bounds, Connection, Verdict

# What it holds now, as far as its claims say: turned over, they are its allocations'.
_HELD = SQL("""
with held as (
    select owner_id as id, count(*) as claims, count(*) filter (where booked) as booked,
           sum((select sum(upper(part) - lower(part)) from unnest(units) part)) filter (where node_id is not null) as gpus
    from claims where owner_kind = 'reservation' and closed_at is null group by owner_id
)""")
WITHOUT_CLAIM = _HELD + SQL("""
select r.id, r.state, coalesce(h.claims, 0), coalesce(h.booked, 0) from reservations r left join held h on h.id = r.id
where case when r.state in ('hold', 'confirmed') then h.id is null or h.claims <> h.booked else h.id is not null end
""")
# What was turned over is the allocations', and paid for by them.
OTHER_GPUS = _HELD + SQL("""
select r.id, r.gpus_held, coalesce(h.gpus, 0) from reservations r left join held h on h.id = r.id
where r.state in ('hold', 'confirmed') and r.gpus_held <> coalesce(h.gpus, 0)
""")
OTHER_CLAIM = """
select c.id, r.id from claims c join reservations r on r.id = c.owner_id
where c.owner_kind = 'reservation'
  and (c.tenant_id <> r.tenant_id or c.during <> tstzrange(r.starts_at, r.ends_at)
       or (c.closed_at is null) <> (r.state in ('hold', 'confirmed')) or c.occupied or c.occupied_from is not null)
"""
# A retired reservation leaves its claims as history, closed.
OF_NOBODY = """
select c.id, c.owner_id from claims c left join reservations r on r.id = c.owner_id, reservation_watermark w
where c.owner_kind = 'reservation' and r.id is null
  and (c.closed_at is null or ('x' || right(replace(c.owner_id::text, '-', ''), 16))::bit(64)::bigint > w.position)
"""
WITH_OTHER_OPERATION = """
select r.id, r.operation_key from reservations r
    join operations o on o.scope = r.tenant_id and o.key = r.operation_key
where o.fingerprint <> r.operation_fingerprint or o.subject_id is distinct from r.id or o.status is distinct from 201
"""
WITHOUT_OPERATION = """
select r.id, r.operation_key from reservations r
    left join operations o on o.scope = r.tenant_id and o.key = r.operation_key
where o.key is null
  and (r.held_at > clock_timestamp() - make_interval(secs => %(retention_seconds)s)
       or r.operation_key = '' or octet_length(r.operation_fingerprint) <> 32)
"""
_EVENTS = SQL("""
with kept as (
    select case when f.version > 1 then l.occurred_at + make_interval(secs => %(spread_seconds)s) else '-infinity' end as since
    from log l cross join log_first f order by l.version limit 1
), emitted as (
    select event_id, event_type, subject from log where event_type like 'reservation.%%'
    union all
    select event_id, event_type, subject from outbox where event_type like 'reservation.%%'
)
""")
UNTOLD = _EVENTS + SQL("""
, wanted as (
    select id, held_event as event_id, held_at as at, array['reservation.held'] as types from reservations
    union all
    select id, ended_event, ended_at, case when failure_code is null then array['reservation.' || state]
                                           else array['reservation.failed', 'reservation.' || state] end
    from reservations where ended_at is not null
)
select w.id, w.types[1] from wanted w left join emitted t on t.event_id = w.event_id
where (t.event_type is null or t.event_type <> all (w.types) or t.subject <> 'reservations/' || w.id)
  and w.at >= coalesce((select since from kept), '-infinity')
""")
TOLD_OF_NOTHING = """
select e.version, e.subject from log e
    left join reservations r on e.subject = 'reservations/' || r.id, reservation_watermark w
where e.event_type = 'reservation.held' and r.id is null
  and ('x' || right(replace(e.subject, '-', ''), 16))::bit(64)::bigint > w.position
"""


def check_reserved_together(connection: Connection, bounds: Bounds) -> Verdict:
    """Each direction of P2 for reservations. What was retired is known by the watermark alone."""
    verdict = Verdict("P2 reservations", "a reservation, its claims, its operation and its events exist together")
    verdict.count(connection, "select count(*) from reservations")
    verdict.scan(connection, WITHOUT_CLAIM, "reservation {0} is {1} and has {2} open claims, {3} of them booked")
    verdict.scan(connection, OTHER_GPUS, "reservation {0} counts {1} GPUs; its claims hold {2}")
    verdict.scan(connection, OTHER_CLAIM, "claim {0} is not what reservation {1} says of it")
    verdict.scan(connection, OF_NOBODY, "claim {0} belongs to reservation {1}, which does not exist")
    verdict.scan(
        connection, WITH_OTHER_OPERATION, "reservation {0} and the operation stored under its key {1} disagree"
    )
    verdict.scan(
        connection,
        WITHOUT_OPERATION,
        "reservation {0} has no operation record (key {1})",
        retention_seconds=bounds.operation_retention_seconds,
    )
    verdict.scan(connection, UNTOLD, "reservation {0} has no event {1}", spread_seconds=LOG_SPREAD_SECONDS)
    verdict.scan(connection, TOLD_OF_NOTHING, "version {0} says that {1} was held; it neither exists nor is retired")
    return verdict
