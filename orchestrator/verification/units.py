"""Every unit is free, held, allocated, blocked by a cleanup, or out of service: the five add up to the fleet.

Unclaimed units are read from the nodes' rows, the rest from claims and slots; so a unit that was lost or counted twice
shows. A unit under several claims counts once: as what is on it now, else as held for its next owner. What no claim
claims is free where something could be placed, and out of service on a node that is not active or not online.
"""

from __future__ import annotations

from psycopg.sql import SQL

from orchestrator.verification.verdict import Bounds, Connection, Verdict

# Grouped by a column of `slots`: of a function's values the planner expects 200, and then compares every slot with every claim.
_COUNTED = SQL("""
with claimed as (
    select s.unit, bool_or(c.occupied and c.waits_for in ('operator', 'force_release')) as blocked,
           bool_or(c.occupied) as occupied
    from claims c cross join lateral unnest(c.units) part
         cross join lateral generate_series(lower(part), upper(part) - 1) claimed_unit
         join slots s on s.unit = claimed_unit
    where c.closed_at is null group by s.unit
), by_node as (
    select s.node_id, count(*) as slots,
           count(*) filter (where c.occupied and c.blocked is not true) as allocated,
           count(*) filter (where c.blocked) as blocked,
           count(*) filter (where not c.occupied) as held,
           count(*) filter (where c.unit is null and s.state = 'out_of_service') as out_of_service,
           bool_and(s.unit = n.unit_base + s.slot_index) as in_block
    from slots s join nodes n on n.id = s.node_id left join claimed c on c.unit = s.unit group by s.node_id
), counted as (
    select n.name, n.slot_count, coalesce(b.slots, 0) as slots, coalesce(b.in_block, true) as in_block,
           case when serves then bit_count(n.free_mask::bit(64)) else 0 end as free,
           coalesce(b.held, 0) as held, coalesce(b.allocated, 0) as allocated, coalesce(b.blocked, 0) as blocked,
           coalesce(b.out_of_service, 0) + case when serves then 0 else bit_count(n.free_mask::bit(64)) end
               as out_of_service
    from nodes n left join by_node b on b.node_id = n.id
         cross join lateral (select n.state = 'active' and n.online as serves) s
)
""")
UNBALANCED = _COUNTED + SQL("""
select name, free, held, allocated, blocked, out_of_service, slot_count from counted
where free + held + allocated + blocked + out_of_service <> slot_count
""")
MISNUMBERED = _COUNTED + SQL("select name, slot_count, slots from counted where slots <> slot_count or not in_block")
SUM = _COUNTED + SQL("""
select coalesce(sum(free), 0), coalesce(sum(held), 0), coalesce(sum(allocated), 0), coalesce(sum(blocked), 0),
       coalesce(sum(out_of_service), 0), (select count(*) from slots)
from counted
""")
EQUATION = "{0} free + {1} held + {2} allocated + {3} cleanup_blocked + {4} out of service = {5}"


def check_units(connection: Connection, _: Bounds) -> Verdict:
    """The sum holds on every node and over all of them; every node has its block of slots."""
    verdict = Verdict("units", "free, held, allocated, cleanup_blocked and out of service add up")
    verdict.scan(
        connection,
        UNBALANCED,
        "node {0}: {1} free + {2} held + {3} allocated + {4} cleanup_blocked + {5} out of service are not {6}",
    )
    verdict.scan(connection, MISNUMBERED, "node {0} says {1} slots; it has {2}, or not on its block of units")
    row = connection.execute(SUM).fetchone()
    assert row is not None, "a sum answers one row"
    *parts, total = (int(number) for number in row)
    verdict.checked = total
    verdict.note = EQUATION.format(*parts, total)
    if sum(parts) != total:
        verdict.add(f"in sum: {verdict.note} is not so")
    return verdict
