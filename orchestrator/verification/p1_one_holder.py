"""P1: a unit has at most one holder at any instant, by right and in fact, past, present and future.

The constraints cover live rows only. This checks all of history, unit by unit: sorted by start, no claim may begin
before the running maximum of the ends before it. A right ends with its window, when its claim was closed, or at the instant by
which its reservation's end was judged, or its allocation's release or failure, whichever is first; occupation is recorded to
the instant. Ends are answered as text: an open one is `infinity`, which is no datetime of Python.
"""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

# What was moved has the right to its units from then on only; of where it was before only the event says something. Claims that
# were moved before revision 0071 have that instant in the event alone.
RIGHTS = """
with moves as (
    select (payload ->> 'reservation_id')::uuid as reservation_id, payload -> 'to' -> 'units' as units,
           max((payload ->> 'judged_at')::timestamptz) as at
    from (select payload from log where event_type = 'reservation.moved'
          union all select payload from outbox where event_type = 'reservation.moved') emitted
    group by 1, 2
), moved as (
    select c.id, c.units, m.units as to_units, m.at from moves m
    join claims c on c.owner_kind = 'reservation' and c.owner_id = m.reservation_id
    union all
    select c.id, c.units, m.units, m.at from moves m join allocations a on a.reservation_id = m.reservation_id
    join claims c on c.owner_kind = 'allocation' and c.owner_id = a.id
), entitled as (
    select id, max(at) as from_then from moved
    where to_units = (select jsonb_agg(jsonb_build_array(lower(r), upper(r)) order by r) from unnest(units) r)
    group by id
), spans as (
    select id, starts, ends, generate_series(lower(part), upper(part) - 1) as unit from (
        select c.id, greatest(lower(c.during), e.from_then, c.moved_at) as starts, unnest(c.units) as part,
               least(coalesce(upper(c.during), 'infinity'), coalesce(c.closed_at, 'infinity'),
                     case when not c.booked then coalesce(a.releasing_at, a.failed_at, r.ended_at, 'infinity')
                          else 'infinity' end) as ends
        from claims c left join allocations a on c.owner_kind = 'allocation' and a.id = c.owner_id
             left join reservations r on c.owner_kind = 'reservation' and r.id = c.owner_id
             left join entitled e on e.id = c.id
    ) parts
), ordered as (
    select unit, id, starts, ends, max(ends) over earlier as held_until, lag(id) over by_start as before
    from spans where starts < ends
    window by_start as (partition by unit order by starts, id),
           earlier as (partition by unit order by starts, id rows between unbounded preceding and 1 preceding)
)
select id, unit, starts, held_until::text, before from ordered where starts < held_until order by unit, starts
"""
OCCUPATIONS = """
with spans as (
    select id, starts, ends, generate_series(lower(part), upper(part) - 1) as unit from (
        select id, occupied_from as starts, coalesce(occupied_until, 'infinity') as ends, unnest(units) as part
        from claims where occupied_from is not null
    ) parts
), ordered as (
    select unit, id, starts, max(ends) over earlier as held_until, lag(id) over by_start as before
    from spans
    window by_start as (partition by unit order by starts, id),
           earlier as (partition by unit order by starts, id rows between unbounded preceding and 1 preceding)
)
select id, unit, starts, held_until::text, before from ordered where starts < held_until order by unit, starts
"""
REVERSED = "select id, occupied_from, occupied_until from claims where occupied_until < occupied_from"
FOREIGN = """
select c.id, c.node_id from claims c left join nodes n on n.id = c.node_id
where c.node_id is not null
  and (n.id is null or not int8multirange(int8range(n.unit_base, n.unit_base + n.slot_count)) @> c.units)
"""
# A claim on no node is one of a registered resource, on exactly its unit.
FOREIGN_RESOURCE = """
select c.id, coalesce(c.resource_id, 'nothing') from claims c left join resources r on r.id = c.resource_id
where c.node_id is null and (r.id is null or c.units <> int8multirange(int8range(r.unit, r.unit + 1)))
"""
SHARED_UNIT = "select r.id, r.unit, s.node_id from resources r join slots s on s.unit = r.unit"


def check_one_holder(connection: Connection, _: Bounds) -> Verdict:
    """Rights and occupations never overlap on a unit, and a claim lies inside its node's block of units, or is its resource's."""
    verdict = Verdict("P1", "a unit has at most one holder at any instant")
    verdict.count(connection, "select count(*) from claims")
    verdict.scan(
        connection,
        RIGHTS,
        "claim {0} has the right to unit {1} from {2}, but an earlier claim's right (such as {4}'s) lasts until {3}",
    )
    verdict.scan(
        connection, OCCUPATIONS, "claim {0} occupies unit {1} from {2}, but an earlier one (such as {4}) until {3}"
    )
    verdict.scan(connection, REVERSED, "claim {0} occupied its units from {1} to {2}, which is earlier")
    verdict.scan(connection, FOREIGN, "claim {0} holds units that are not node {1}'s")
    verdict.scan(connection, FOREIGN_RESOURCE, "claim {0} holds units that are not the resource {1}'s")
    verdict.scan(connection, SHARED_UNIT, "resource {0} has the unit {1}, which is a slot of node {2}")
    return verdict
