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
where c.occupied or not coalesce(u.units @> c.units, false)
   or c.closed_at is null and not tstzrange(w.starts_at, w.ends_at) @> c.during
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
    return verdict
