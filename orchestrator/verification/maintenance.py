"""Maintenance windows: each open one has claimed what no allocation holds of its units, and nothing else."""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

# The part of a unit's time that no right covers is free; what another right covers is `planned`, to be claimed when that ends.
UNCLAIMED = """
with unit as materialized (
    select w.id, u.node_id, unit, u.planned @> unit as planned,
           tstzrange(greatest(w.starts_at, statement_timestamp()), w.ends_at) as span
    from maintenance_windows w join maintenance_units u on u.window_id = w.id cross join lateral unnest(u.units) part
    cross join lateral generate_series(lower(part), upper(part) - 1) unit
    where w.state in ('scheduled', 'active') and w.ends_at > statement_timestamp()
), booked as materialized (
    select c.node_id, c.units, c.during, c.owner_id from claims c
    where c.closed_at is null and c.booked and c.node_id in (select node_id from unit)
), judged as (
    select u.id, u.unit, u.node_id, u.planned, coalesce(range_agg(b.during), '{}') @> u.span as covered,
           coalesce(bool_or(b.owner_id <> u.id), false) as shared
    from unit u left join booked b on b.node_id = u.node_id and b.units @> u.unit and b.during && u.span
    group by u.id, u.unit, u.node_id, u.planned, u.span
)
select id, unit, node_id, case when covered then 'holds' else 'leaves free' end from judged
where not covered or shared and not planned
"""
SURPLUS = """
select c.id, w.id from claims c join maintenance_windows w on c.owner_kind = 'maintenance' and w.id = c.owner_id
left join maintenance_units u on u.window_id = w.id and u.node_id = c.node_id
where not coalesce(u.units @> c.units, false)
   or c.closed_at is null and not tstzrange(w.starts_at, w.ends_at) @> c.during
"""


# From the signature of the task until its result is known, also past the end of the window: no other may start on the units.
UNGUARDED = """
select k.window_id, k.node_id, k.state, coalesce(c.units, '{}')::text from maintenance_tasks k
join maintenance_units u on u.window_id = k.window_id and u.node_id = k.node_id
left join lateral (
    select range_agg(part) as units from claims c cross join lateral unnest(c.units) part
    where c.owner_id = k.window_id and c.node_id = k.node_id and c.owner_kind = 'maintenance' and c.occupied
) c on true
where coalesce(c.units, '{}') <> case when k.state = 'running' then u.units else '{}' end
"""
STRAY = """
select c.id, c.owner_id from claims c where c.owner_kind = 'maintenance' and c.occupied
  and not exists (select from maintenance_tasks k where k.window_id = c.owner_id and k.node_id = c.node_id)
"""
ENDED_EARLY = """
select w.id, w.state, k.node_id from maintenance_windows w join maintenance_tasks k on k.window_id = w.id
where w.state <> 'active' and k.state = 'running'
"""


def check_maintenance(connection: Connection, _: Bounds) -> Verdict:
    """Every open window holds its units, or waits for the allocations that do."""
    verdict = Verdict("maintenance", "a maintenance window claims its units, except what an allocation holds")
    verdict.count(connection, "select count(*) from maintenance_windows where waits_until is not null")
    verdict.scan(
        connection,
        UNCLAIMED,
        "maintenance window {0} has neither claimed nor planned unit {1} of node {2}, which another owner {3}",
    )
    verdict.scan(connection, SURPLUS, "claim {0} is not within the units and the time of maintenance window {1}")
    verdict.count(connection, "select count(*) from maintenance_tasks where ended_at is null")
    verdict.scan(
        connection,
        UNGUARDED,
        "the task of maintenance window {0} on node {1} is {2}, and the window occupies the units {3} there",
    )
    verdict.scan(connection, STRAY, "claim {0} of maintenance window {1} occupies units, and no task of it runs there")
    verdict.scan(connection, ENDED_EARLY, "maintenance window {0} is {1} while its task runs on node {2}")
    return verdict
