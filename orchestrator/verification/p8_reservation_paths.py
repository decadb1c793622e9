"""P8 for reservations: the events of each form a legal path (DESIGN §4) that ends where the row is; ids never repeat."""

from __future__ import annotations

from psycopg.sql import SQL

from orchestrator.verification.verdict import Bounds, Connection, Verdict

# Written down a second time: a check must not trust the checked. A failed one ends as cancelled. An event that neither
# begins nor ends anything (`ending`, `moved`) is no step.
_STEPS = SQL("""
with legal (came, went) as (values
    ('', 'held'), ('held', 'confirmed'), ('held', 'cancelled'), ('held', 'expired'), ('held', 'consumed'),
    ('confirmed', 'consumed'), ('confirmed', 'cancelled'), ('confirmed', 'released')
), steps as (
    select subject, version, went, coalesce(lag(went) over story, '') as came
    from log cross join lateral (
        select case event_type when 'reservation.failed' then 'cancelled' else substr(event_type, 13) end as went) w
    where event_type in ('reservation.held', 'reservation.confirmed', 'reservation.cancelled', 'reservation.expired',
                         'reservation.consumed', 'reservation.released', 'reservation.failed')
    window story as (partition by subject order by version)
)
""")
# What retention has taken from the log's beginning cannot be asked for: then a story may begin anywhere.
ILLEGAL = _STEPS + SQL("""
select s.subject, s.version, coalesce(nullif(s.came, ''), 'nothing'), s.went from steps s left join legal l using (came, went)
where l.went is null and (s.came <> '' or (select min(version) from log) = 1)
""")
ENDS = _STEPS + SQL("""
, newest as (
    select distinct on (subject) subject, case went when 'held' then 'hold' else went end as state from steps
    order by subject, version desc
)
select r.id, r.state, n.state from reservations r join newest n on n.subject = 'reservations/' || r.id
where n.state <> r.state and not exists (select from outbox o where o.subject = n.subject)
""")
# The highest half is the shard. An id beyond the sequence could be given out a second time.
MISNUMBERED = """
select r.id, r.position, s.last_value from reservations r, reservation_positions s
where ('x' || right(replace(r.id::text, '-', ''), 16))::bit(64)::bigint <> r.position
   or r.position > s.last_value or not s.is_called
"""
AHEAD = """
select w.position, s.last_value from reservation_watermark w, reservation_positions s
where w.position > case when s.is_called then s.last_value else 0 end
"""
WATERMARKS = "select count(*) from reservation_watermark having count(*) <> 1"


def check_reservation_paths(connection: Connection, _: Bounds) -> Verdict:
    """Every story begins with a hold, takes legal steps only and ends as the row says; no id can be given out again."""
    verdict = Verdict("P8 reservations", "a reservation's path is legal and its id its own for ever")
    verdict.count(connection, "select count(*) from log where event_type like 'reservation.%'")
    verdict.scan(connection, ILLEGAL, "{0} went from {2} to {3} at version {1}")
    verdict.scan(connection, ENDS, "reservation {0} is {1}, but its events end with {2}")
    verdict.scan(connection, MISNUMBERED, "reservation {0} has the position {1}; the sequence is at {2}")
    verdict.scan(connection, AHEAD, "the watermark is at {0}, but only {1} ids were given out")
    verdict.scan(connection, WATERMARKS, "there are {0} watermarks")
    return verdict
