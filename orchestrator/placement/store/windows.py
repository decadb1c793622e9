"""SQL for free slots in a window: candidate nodes, and whole pools over time, read without locks (DESIGN §5).

The transaction that places on a candidate locks the node and reads its claims again; the exclusion constraint is the guard.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from orchestrator.catalogue.shapes import Shape
from orchestrator.database.calls import Parameters
from orchestrator.database.transactions import Reading
from orchestrator.placement.admission import AdmittedUnits
from orchestrator.placement.earliest import Ground, Grounds
from orchestrator.placement.inventory import Layout
from orchestrator.placement.windows import FreeNode, WindowDecision, choose

CANDIDATES_MIN = 64
"""Candidates read even for one claim, so that concurrent requests can choose different nodes."""
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NODE = struct.Struct(">iiq")
_BLOCK = struct.Struct(">iqqq")

# `limit` picks need at most the first `limit` nodes in this order: each pick opens at most one new node.
_ALWAYS_FREE = """
select n.id as node_id, n.unit_base, n.slot_count, n.half_slots, n.placement_rank, n.free_mask as mask
from unnest(cast(:classes as smallint[])) with ordinality as c(class, place)
cross join lateral (
    select id, unit_base, slot_count, half_slots, placement_rank, free_mask from nodes
    where pool_id = :pool and fit_class = c.class and state = 'active' and online
      and (cast(:whole as integer) is null or slot_count = :whole)
    order by placement_rank, id limit :limit
) n order by c.place, n.placement_rank, n.id limit :limit
"""
_IN_WINDOW = """
select w.* from (select clock_timestamp() as now) t cross join lateral nodes_in_window(
    :pool, greatest(cast(:starts_at as timestamptz), t.now), cast(:ends_at as timestamptz), t.now,
    cast(:whole as integer), cast(:classes as smallint[]), :limit) w
"""
# OFFSET keeps the planner from joining a few overdue holds with all open claims.
_OVERDUE_HOLD = """
select from reservation_states r
where r.state = 'hold' and r.expires_at <= (select clock_timestamp()) and exists (
    select from claims c where c.owner_id = r.id and c.closed_at is null
    and (select n.pool_id from nodes n where n.id = c.node_id) = :pool_id offset 0)
order by r.expires_at, r.position limit 1
"""
_IN_TIME = "select fixed, nodes, blocks from pools_in_time(cast(:pools as integer[]), :starts_at, :now)"


@dataclass(frozen=True, slots=True)
class PackedGrounds:
    """Pools over time in the database's binary format; unpacking runs in this process."""

    fixed: list[list[int]]
    nodes: bytes
    blocks: bytes


async def find_room(
    reading: Reading,
    wanted: AdmittedUnits,
    starts_at: datetime | None,
    ends_at: datetime | None,
    count: int,
    *,
    outrun: bool = False,
) -> WindowDecision:
    """Up to `count` picks in the window; `starts_at` None: from now on, `ends_at` None: without an end.

    Slots that are free without an end come from the materialised fit; claims are read only if these do not suffice.
    `outrun`: the best node was lost to a concurrent request before, so choose any that serves.
    """
    choices = wanted.decision.choices
    values = {
        "pool": wanted.pool.pool_id,
        "classes": [choice.fit.number for choice in choices],
        "whole": wanted.gpus if wanted.sku.shape == Shape.BAREMETAL else None,
        "limit": count,
    }
    spread = random.randrange(1, 2**31) if outrun else 0
    always_free = await _nodes(reading, _ALWAYS_FREE, values)
    decision = choose(wanted.decision, wanted.sku.shape, wanted.gpus, always_free, (), count, spread)
    if len(decision.picks) == count:
        return decision
    values |= {"starts_at": starts_at, "ends_at": ends_at, "limit": max(count, CANDIDATES_MIN) + len(always_free)}
    in_window = await _nodes(reading, _IN_WINDOW, values)
    return choose(wanted.decision, wanted.sku.shape, wanted.gpus, always_free, in_window, count, spread)


async def _nodes(reading: Reading, statement: str, values: Parameters) -> list[FreeNode]:
    return [
        FreeNode(row.node_id, row.unit_base, Layout(row.slot_count, row.half_slots), row.placement_rank, row.mask)
        for row in await reading.execute(statement, values)
    ]


async def has_overdue_holds(reading: Reading, pool_id: int) -> bool:
    """Whether a hold past its deadline still claims units of the pool."""
    return (await reading.execute(_OVERDUE_HOLD, {"pool_id": pool_id})).first() is not None


async def read_grounds(reading: Reading, pools: Sequence[int], starts_at: datetime, now: datetime) -> PackedGrounds:
    """The claims that decide what fits in these pools from `starts_at` on, as of `now`."""
    values = {"pools": list(pools), "starts_at": starts_at, "now": now}
    row = (await reading.execute(_IN_TIME, values)).one()
    return PackedGrounds(row.fixed, bytes(row.nodes), bytes(row.blocks))


def unpack_grounds(packed: PackedGrounds, pools: Sequence[int]) -> dict[int, Grounds]:
    """Grounds by pool; times are microseconds since 2000 (`micros`)."""
    fixed: dict[int, dict[tuple[int, int], int]] = {pool: {} for pool in pools}
    for pool, slot_count, free, number in packed.fixed:
        fixed[pool][slot_count, free] = number
    nodes: dict[int, list[Ground]] = {pool: [] for pool in pools}
    places: list[tuple[int, int]] = []
    for pool, slot_count, mask in _NODE.iter_unpack(packed.nodes):
        places.append((pool, len(nodes[pool])))
        nodes[pool].append(Ground(slot_count, mask))
    blocks: dict[int, list[tuple[int, int, int, int]]] = {pool: [] for pool in pools}
    for place, begins, until, mask in _BLOCK.iter_unpack(packed.blocks):
        pool, own_place = places[place]
        blocks[pool].append((own_place, begins, until, mask))
    return {pool: Grounds(fixed[pool], nodes[pool], blocks[pool]) for pool in pools}


def micros(moment: datetime) -> int:
    """Microseconds since 2000, the time of the sweep."""
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(micros_: int) -> datetime:
    """The inverse of `micros`."""
    return _EPOCH + micros_ * _MICROSECOND
