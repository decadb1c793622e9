"""Compares what nodes say they hold with what they should hold, some nodes a round, and goes on with what admins decided.

What is found is recorded and told; nothing on a node is touched without an admin's word (TRAPS, failure 27).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from uuid import UUID

import structlog

from orchestrator.allocations.commands.absences import end_absence, note_absence
from orchestrator.nodes.commands.orphan_progress import advance_orphan
from orchestrator.nodes.commands.orphans import report_orphan
from orchestrator.nodes.inventory_queries import (
    Differences,
    compare_inventories,
    count_differences,
    find_undecided_orphans,
)
from orchestrator.operations.execution import Context
from orchestrator.problems import Problem
from worker.metrics import ALLOCATIONS_MISSING, ORPHANS, ORPHANS_FOUND, SWEEP_FAILURES

log = structlog.get_logger()

FIRST_NODE = UUID(int=0)
SEEN_AGAIN_SECONDS = 60.0
"""How often an orphan that stays is written down as seen again, at most."""


class Reconciler:
    """One round in `seconds`: at most `nodes_max` nodes, at most `limit` things of each kind, each in its transaction."""

    def __init__(self, context: Context, *, seconds: float, nodes_max: int, limit: int, inventories_min: int) -> None:
        self._context = context
        self._seconds = seconds
        self._nodes_max = nodes_max
        self._limit = limit
        self._inventories_min = inventories_min
        self._due = float("-inf")
        self._after = FIRST_NODE

    async def sweep(self) -> None:
        """Go on with orphans that were decided about; and one round of comparison, if it is time."""
        for orphan_id in await find_undecided_orphans(self._context, self._limit):
            await self._done(self._advance(orphan_id), orphan_id=str(orphan_id))
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + self._seconds
        await self._compare(
            await compare_inventories(
                self._context, self._after, nodes_max=self._nodes_max, refresh_seconds=SEEN_AGAIN_SECONDS,
                limit=self._limit,
            )
        )  # fmt: skip
        orphans, missing = await count_differences(self._context)
        for state in ("reported", "adopted", "destroying"):
            ORPHANS.labels(state).set(orphans.get(state, 0))
        ALLOCATIONS_MISSING.set(missing)

    async def _compare(self, found: Differences) -> None:
        for one in found.unexplained:
            await self._done(self._report(one.node_id, one.allocation_id), node_id=str(one.node_id))
        for allocation_id in found.missed:
            await self._done(self._miss(allocation_id), allocation_id=str(allocation_id))
        for allocation_id in found.over:
            await self._done(self._end(allocation_id), allocation_id=str(allocation_id))
        self._after = found.last_node or FIRST_NODE

    async def _advance(self, orphan_id: UUID) -> None:
        state = await advance_orphan(self._context, orphan_id)
        if state is not None:
            log.info("orphan_advanced", orphan_id=str(orphan_id), state=state.value)

    async def _report(self, node_id: UUID, allocation_id: UUID) -> None:
        orphan_id = await report_orphan(self._context, node_id, allocation_id)
        if orphan_id is not None:
            ORPHANS_FOUND.inc()
            log.error("orphan_found", node_id=str(node_id), allocation_id=str(allocation_id), orphan_id=str(orphan_id))

    async def _miss(self, allocation_id: UUID) -> None:
        if await note_absence(self._context, allocation_id, self._inventories_min):
            log.error("allocation_missing_on_node", allocation_id=str(allocation_id))

    async def _end(self, allocation_id: UUID) -> None:
        if await end_absence(self._context, allocation_id):
            log.info("allocation_missing_no_more", allocation_id=str(allocation_id))

    async def _done(self, work: Awaitable[None], **about: str) -> None:
        """One thing that cannot be done now hides none of the others."""
        try:
            await work
        except Problem as problem:
            SWEEP_FAILURES.labels("reconciliation").inc()
            log.warning("reconciliation_failed", why=str(problem), **about)
