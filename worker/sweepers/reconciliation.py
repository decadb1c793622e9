"""Compares the inventories of nodes with the claims, and carries out what operators decided about orphans.

A difference is recorded and announced; without an operator's decision nothing on a node is changed. After a restore, what is
active in the rows and on no node is released (`release_lost_in_restore`).
"""

from __future__ import annotations

from uuid import UUID

import structlog

from orchestrator.allocations.commands.absences import end_absence, note_absence
from orchestrator.allocations.commands.lost_in_restore import release_lost_in_restore
from orchestrator.nodes.commands.orphan_progress import advance_orphan
from orchestrator.nodes.commands.orphans import report_orphan
from orchestrator.nodes.commands.restored_nodes import open_restored_node
from orchestrator.nodes.inventory_queries import (
    Differences,
    compare_inventories,
    count_awaited_inventories,
    count_differences,
    find_actionable_orphans,
    find_arrived_inventories,
)
from orchestrator.operations.execution import Context
from worker.metrics import ALLOCATIONS_MISSING, INVENTORIES_AWAITED, ORPHANS, ORPHANS_FOUND
from worker.sweepers.sweeper import isolate_failure

log = structlog.get_logger()

FIRST_NODE = UUID(int=0)
SEEN_AGAIN_SECONDS = 60.0
"""Shortest time between two updates of an orphan's `seen` time."""


async def advance_orphans(context: Context, limit: int) -> None:
    """Carry out the decisions about at most `limit` orphans."""
    for orphan_id in await find_actionable_orphans(context, limit):
        with isolate_failure("orphans", orphan_id=str(orphan_id)):
            state = await advance_orphan(context, orphan_id)
            if state is not None:
                log.info("orphan_advanced", orphan_id=str(orphan_id), state=state.value)


class InventoryReconciler:
    """Compares the inventories of at most `nodes_max` nodes a run, in id order, and records at most `limit` differences
    of each kind, each in its own transaction. The next run continues with the next node.
    """

    def __init__(self, context: Context, *, nodes_max: int, limit: int, inventories_min: int) -> None:
        self._context = context
        self._nodes_max = nodes_max
        self._limit = limit
        self._inventories_min = inventories_min
        self._after = FIRST_NODE

    async def run(self) -> None:
        """Open nodes whose inventory was awaited after a restore, record the differences of the next nodes, set the gauges."""
        await self._open_restored()
        differences = await compare_inventories(
            self._context, self._after, nodes_max=self._nodes_max, refresh_seconds=SEEN_AGAIN_SECONDS,
            limit=self._limit,
        )  # fmt: skip
        await self._record(differences)
        self._after = differences.last_node or FIRST_NODE
        orphans, missing = await count_differences(self._context)
        for state in ("reported", "adopted", "destroying"):
            ORPHANS.labels(state).set(orphans.get(state, 0))
        ALLOCATIONS_MISSING.set(missing)
        INVENTORIES_AWAITED.set(await count_awaited_inventories(self._context))

    async def _open_restored(self) -> None:
        arrived = await find_arrived_inventories(self._context, self._nodes_max)
        for found in arrived.unexplained:
            with isolate_failure("inventories", node_id=str(found.node_id)):
                await self._report_orphan(found.node_id, found.allocation_id)
        for allocation_id in arrived.lost:
            with isolate_failure("inventories", allocation_id=str(allocation_id)):
                if await release_lost_in_restore(self._context, allocation_id):
                    log.warning("allocation_lost_in_restore", allocation_id=str(allocation_id))
        for node_id in arrived.nodes:
            with isolate_failure("inventories", node_id=str(node_id)):
                if await open_restored_node(self._context, node_id):
                    log.info("restored_node_opened", node_id=str(node_id))

    async def _record(self, differences: Differences) -> None:
        for unexplained in differences.unexplained:
            with isolate_failure("inventories", node_id=str(unexplained.node_id)):
                await self._report_orphan(unexplained.node_id, unexplained.allocation_id)
        for allocation_id in differences.missed:
            with isolate_failure("inventories", allocation_id=str(allocation_id)):
                if await note_absence(self._context, allocation_id, self._inventories_min):
                    log.error("allocation_missing_on_node", allocation_id=str(allocation_id))
        for allocation_id in differences.over:
            with isolate_failure("inventories", allocation_id=str(allocation_id)):
                if await end_absence(self._context, allocation_id):
                    log.info("allocation_found_again", allocation_id=str(allocation_id))

    async def _report_orphan(self, node_id: UUID, allocation_id: UUID) -> None:
        orphan_id = await report_orphan(self._context, node_id, allocation_id)
        if orphan_id is not None:
            ORPHANS_FOUND.inc()
            log.error("orphan_found", node_id=str(node_id), allocation_id=str(allocation_id), orphan_id=str(orphan_id))
