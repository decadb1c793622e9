"""Where what nodes hold and what they should hold differ; looked at without locks, some nodes at a time."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from orchestrator.allocations.store import absences
from orchestrator.nodes.store import inventories, orphans
from orchestrator.nodes.store.inventories import Unexplained
from orchestrator.operations.execution import Context

UNRECORDED_ONLY_SECONDS = 1e9
"""Leaves out what is recorded already, however long ago it was seen."""


@dataclass(frozen=True, slots=True)
class Differences:
    """Differences of some nodes, up to `last_node`; None when there are no more nodes."""

    last_node: UUID | None
    unexplained: list[Unexplained]
    missed: list[UUID]
    over: list[UUID]


async def compare_inventories(
    context: Context, after: UUID, *, nodes_max: int, refresh_seconds: float, limit: int
) -> Differences:
    """What is to be done about at most `nodes_max` nodes with ids after `after`; at most `limit` of each kind."""
    async with context.database.reading() as reading:
        nodes = await inventories.nodes_with_inventory(reading, after, nodes_max)
        if not nodes:
            return Differences(None, [], [], [])
        return Differences(
            nodes[-1] if len(nodes) == nodes_max else None,
            await inventories.find_unexplained(reading, nodes, refresh_seconds=refresh_seconds, limit=limit),
            await absences.find_missed(reading, nodes, limit),
            await absences.find_over(reading, nodes, limit),
        )


async def find_actionable_orphans(context: Context, limit: int) -> list[UUID]:
    """Orphans that something can be done about now, the earliest deadline first."""
    async with context.database.reading() as reading:
        return await orphans.find_undecided(reading, limit)


async def count_differences(context: Context) -> tuple[dict[str, int], int]:
    """Orphans by state, and how many active allocations are reported as missing on their nodes."""
    async with context.database.reading() as reading:
        return await orphans.count_orphans(reading), await absences.count_reported(reading)


@dataclass(frozen=True, slots=True)
class Arrived:
    """Nodes whose inventory was awaited after a restore and is here: what they hold that is unknown here, and what they lack."""

    nodes: list[UUID]
    unexplained: list[Unexplained]
    lost: list[UUID]


async def find_arrived_inventories(context: Context, limit: int) -> Arrived:
    """At most `limit` such nodes, and everything about them."""
    async with context.database.reading() as reading:
        nodes = await inventories.find_arrived(reading, limit)
        if not nodes:
            return Arrived([], [], [])
        most = limit * inventories.ORPHANS_PER_NODE_MAX
        return Arrived(
            nodes,
            await inventories.find_unexplained(reading, nodes, refresh_seconds=UNRECORDED_ONLY_SECONDS, limit=most),
            await absences.find_lost_in_restore(reading, nodes, most),
        )


async def count_awaited_inventories(context: Context) -> int:
    """How many nodes are awaited after a restore."""
    async with context.database.reading() as reading:
        return await inventories.count_awaited(reading)
