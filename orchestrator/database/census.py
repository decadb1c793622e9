"""Counts of live rows, for metrics. Indexed or one pass over the fleet; never over history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from orchestrator.database.transactions import Database, Reading
from orchestrator.nodes.states import SlotState


@dataclass(frozen=True, slots=True)
class Census:
    """Live allocations by state, nodes by what is wanted of them and whether they answer, GPUs by pool.

    `gpus` maps (region, GPU model, shape) to a count for each `SlotState`, whose sum is the pool, without retired
    nodes; `oldest_wait_seconds` is about deadlines that have not passed yet as well. `tasks` maps a live task's state to how
    many there are and how long the oldest has been in it; `claims_waiting` counts ended rights by what their units wait for;
    `approvals_waiting` requests that wait for a second operator by action, and how long the oldest has waited;
    `maintenance` open maintenance windows by state, each with how many of their units an allocation still holds.
    """

    allocations: dict[str, int]
    oldest_wait_seconds: dict[str, float]
    nodes: dict[tuple[str, bool], int]
    gpus: dict[tuple[str, str, str], dict[SlotState, int]]
    tasks: dict[str, tuple[int, float]]
    claims_waiting: dict[str, int]
    approvals_waiting: dict[str, tuple[int, float]]
    maintenance: dict[str, tuple[int, int]]


_ALLOCATIONS = """
select state, found, extract(epoch from clock_timestamp() - waits_since) as oldest from live_allocations()
"""
_TASKS = """
select state, count(*) as found,
       extract(epoch from clock_timestamp() - min(case state when 'queued' then queued_at else dispatched_at end)) as oldest
from node_tasks where state in ('queued', 'dispatched') group by state
"""
# Each half has its index of open claims; together they have none.
_CLAIMS_WAITING = """
select waits_for, count(*) as found from (
    select waits_for from claims where closed_at is null and node_id is not null
    union all
    select waits_for from claims where closed_at is null and resource_id is not null
) open where waits_for is not null group by waits_for
"""
_APPROVALS = """
select action, count(*) as found, extract(epoch from clock_timestamp() - min(waits_since)) as oldest
from approvals where state = 'pending' group by action
"""
_MAINTENANCE = """
select w.state, count(distinct w.id) as found, coalesce(sum(upper(part) - lower(part)), 0)::integer as planned
from maintenance_windows w left join maintenance_units u on u.window_id = w.id and not isempty(u.planned)
left join lateral unnest(u.planned) part on true
where w.waits_until is not null group by w.state
"""
_NODES = "select state, online, count(*) as found from nodes group by state, online"
# One pass over the fleet; claims are read only where they are few and indexed.
_GPUS = """
with special as materialized (
    select node_id, sum(blocked) as blocked, sum(held) as held from (
        select c.node_id, upper(part) - lower(part) as blocked, 0 as held from claims c cross join lateral unnest(c.units) part
        where c.waits_for in ('operator', 'force_release')
        union all
        select h.node_id, 0, count(distinct unit) from claims h cross join lateral unnest(h.units) part
             cross join lateral generate_series(lower(part), upper(part) - 1) unit
        where h.closed_at is null and not h.occupied and h.node_id is not null
          and not exists (select from claims o where o.occupied and o.units @> unit)
        group by h.node_id
    ) few group by node_id
)
select n.region, n.gpu_model, n.shape, sum(n.slot_count)::bigint as total,
       coalesce(sum(bit_count(n.free_mask::bit(64))) filter (where n.state = 'active' and n.online), 0)::bigint as free,
       coalesce(sum(bit_count(n.free_mask::bit(64))) filter (where not (n.state = 'active' and n.online)), 0)::bigint
           as out_of_service,
       coalesce(sum(s.blocked), 0)::bigint as blocked, coalesce(sum(s.held), 0)::bigint as held
from nodes n left join special s on s.node_id = n.id
where n.state <> 'retired' group by n.region, n.gpu_model, n.shape
"""


def _by_state(row: Row[Any]) -> dict[SlotState, int]:
    known = {
        SlotState.FREE: row.free,
        SlotState.HELD: row.held,
        SlotState.CLEANUP_BLOCKED: row.blocked,
        SlotState.OUT_OF_SERVICE: row.out_of_service,
    }
    return {**known, SlotState.ALLOCATED: row.total - sum(known.values())}


async def read_census(reading: Reading) -> Census:
    """Everything in one snapshot."""
    live = list(await reading.execute(_ALLOCATIONS))
    return Census(
        allocations={row.state: row.found for row in live},
        oldest_wait_seconds={row.state: float(row.oldest or 0.0) for row in live},
        nodes={(row.state, row.online): row.found for row in await reading.execute(_NODES)},
        tasks={row.state: (row.found, float(row.oldest)) for row in await reading.execute(_TASKS)},
        claims_waiting={row.waits_for: row.found for row in await reading.execute(_CLAIMS_WAITING)},
        approvals_waiting={row.action: (row.found, float(row.oldest)) for row in await reading.execute(_APPROVALS)},
        maintenance={row.state: (row.found, row.planned) for row in await reading.execute(_MAINTENANCE)},
        gpus={(row.region, row.gpu_model, row.shape): _by_state(row) for row in await reading.execute(_GPUS)},
    )


async def take_census(database: Database) -> Census:
    """Allocations, nodes and GPUs by state."""
    async with database.reading() as reading:
        return await read_census(reading)
