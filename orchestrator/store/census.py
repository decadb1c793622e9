"""Counts of what lives now, for metrics. Indexed or one pass over the fleet; never over history."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.store.database import Reading


@dataclass(frozen=True, slots=True)
class Census:
    """Live allocations by state, nodes by what is wanted of them and whether they answer, GPUs by pool.

    `gpus` maps (region, GPU model, shape) to (placeable now, in all); `oldest_wait_seconds` is about deadlines that have
    not passed yet as well.
    """

    allocations: dict[str, int]
    oldest_wait_seconds: dict[str, float]
    nodes: dict[tuple[str, bool], int]
    gpus: dict[tuple[str, str, str], tuple[int, int]]


_ALLOCATIONS = """
select state, count(*) as found, extract(epoch from clock_timestamp() - min(waits_since)) as oldest
from allocations where state not in ('released', 'failed') group by state
"""
_NODES = "select state, online, count(*) as found from nodes group by state, online"
_GPUS = """
select region, gpu_model, shape, sum(slot_count) as total,
       coalesce(sum(bit_count(free_mask::bit(64))) filter (where state = 'active' and online), 0) as free
from nodes group by region, gpu_model, shape
"""


async def read_census(reading: Reading) -> Census:
    """Everything in one snapshot."""
    live = list(await reading.execute(_ALLOCATIONS))
    return Census(
        allocations={row.state: row.found for row in live},
        oldest_wait_seconds={row.state: float(row.oldest or 0.0) for row in live},
        nodes={(row.state, row.online): row.found for row in await reading.execute(_NODES)},
        gpus={
            (row.region, row.gpu_model, row.shape): (int(row.free), int(row.total))
            for row in await reading.execute(_GPUS)
        },
    )
